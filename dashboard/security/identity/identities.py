"""Who somebody is and may do, by the names that their credentials carry; read at most every other second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dashboard.security.identity.fresh_answers import FreshAnswers
from db import acting
from db.engine import Store
from db.people import users
from domain.people.rights import NOBODY, OWNER, PROGRAM, Rights, rights_of_owner
from domain.people.roles import Action


class Identities:
    """The rights of all people; safe to use from any thread."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._answers = FreshAnswers(lambda name: users.rights_of(store, name), now)
        self.on_change: Callable[[], None] = lambda: None
        """Called when rights have changed here, from any thread."""

    @property
    def changes(self) -> int:
        """How often rights have changed here."""
        return self._answers.changes

    def rights(self, name: str) -> Rights | None:
        """The rights of a person; None where they were removed or never were."""
        return rights_of_owner() if name == OWNER else self._answers.answer(name)

    def person(self, name: str | None) -> Rights:
        """The rights of the person for whom the program acts: none once they were removed; None: the program's own."""
        return PROGRAM if name is None else self.rights(name) or NOBODY

    def acting_for(
        self, name: str | None, via: str, only_project: str | None = None, token_id: str | None = None
    ) -> Rights:
        """The present rights of a person for a program that acts for them, which `via` names; see `person`.

        `only_project`: that of the token with which it was begun, which still bounds it when the token is gone;
        `token_id`: the token whose budget pays."""
        return replace(self.person(name), by=name, via=via, only_project=only_project, token_id=token_id)

    def fresh(self, rights: Rights) -> Rights:
        """The present rights of the person who has these, within the bounds of their token."""
        now = self.rights(rights.by) if rights.by else None
        if now is None:
            return NOBODY
        return replace(
            now, via=rights.via, scope=rights.scope, only_project=rights.only_project, token_id=rights.token_id
        )

    def check_still_may(self, action: Action, project: str) -> None:
        """Raise Denied where a person's present rights no longer allow what they began, or the person left."""
        rights = acting.rights()
        if rights.by is not None:
            self.fresh(rights).check(action, project)

    def forget(self) -> None:
        """Read everyone's rights again: roles, memberships or private projects have changed."""
        self._answers.forget()
        self.on_change()
