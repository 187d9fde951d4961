"""Secrets of people and projects: set, listed by name, removed, and given to the attempts that name them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from dashboard.clock import AnchoredTime
from dashboard.security.keys.secret_key import SecretKey, SecretsUnreadable
from db import acting
from db.engine import Store
from db.exceptions import WrongState
from db.people import stored_secrets
from db.people.ownership import project_of
from db.people.stored_secrets import Receiver, SecretOwner, StoredSecret
from domain.assignments import Assignment
from domain.masking.values import check_value, doubt
from domain.people.rights import OWNER, Denied, Rights
from domain.people.roles import Action
from domain.people.secret_views import SecretView, SetSecretView
from domain.requests.errors import InvalidRequest, NoSuchReference
from domain.spec import RunSpec, check_variable

log = logging.getLogger("rankzero")


class Secrets:
    """The secrets in one store. The actor sees names, never values."""

    def __init__(self, store: Store, key_file: Path, clock: AnchoredTime) -> None:
        self._store, self._clock = store, clock
        self._key = SecretKey(key_file, lambda: stored_secrets.has_any(store))

    def set(self, name: str, value: str, project: str | None = None) -> SetSecretView:
        """Set a secret of the actor, or of a project. Raises InvalidRequest, Denied, SecretsUnreadable."""
        owner = _owner_to_change(project)
        _check_name(name)
        check_value(value)
        ciphertext = self._key.encrypt(value, owner.user, owner.project, name)
        view = stored_secrets.put(self._store, owner, name, ciphertext, acting.rights().by, self._clock())
        log.info("secret %s of %s set", name, owner)
        return SetSecretView(**view.model_dump(), doubt=doubt(value))

    def remove(self, name: str, project: str | None = None) -> SecretView:
        """Remove a secret; live attempts keep it. Raises NoSuchSecret, Denied."""
        owner = _owner_to_change(project)
        view = stored_secrets.remove(self._store, owner, name)
        log.info("secret %s of %s removed", name, owner)
        return view

    def every(self) -> list[SecretView]:
        """The secrets that the actor may launch with, by name: with a token for one project its own alone."""
        rights = acting.rights()
        projects = [
            project
            for project in stored_secrets.projects_with_secrets(self._store)
            if rights.may(Action.LAUNCH, project)
        ]
        return stored_secrets.of_owners(self._store, _own(rights), projects)

    def check_spec(self, spec: RunSpec) -> None:
        """Raise InvalidRequest where a launch names secrets that it would not get, or contains a value."""
        if not spec.secrets:
            return
        rights, project = acting.rights(), project_of(spec)
        of_project = project if rights.may(Action.LAUNCH, project) else None  # a preview must not tell what is hidden
        with self._store.read() as session:
            usable = stored_secrets.usable(session, _own(rights), of_project, spec.secrets)
        if missing := sorted(set(spec.secrets) - usable.keys()):
            raise NoSuchReference("secrets", _missing(missing[0], "yours", project))
        try:
            for secret in usable.values():
                self._check_absent(spec, secret)
        except SecretsUnreadable as error:
            raise InvalidRequest("secrets", f"secrets: {error}") from None

    def given_to(self, assignment: Assignment) -> Assignment:
        """The assignment with the values of its secrets, the same for all nodes of its attempt, or why it has none."""
        names = assignment.spec.secrets
        if not names:
            return assignment
        try:
            values = self._values(assignment)
        except (SecretsUnreadable, InvalidRequest) as error:
            sentence = str(error).removeprefix("secrets: ")
            return assignment.model_copy(update={"secrets_problem": sentence[:1].upper() + sentence[1:]})
        return assignment.model_copy(update={"secrets": values})

    def owners(self, names: Collection[str], project: str) -> dict[str, SecretOwner]:
        """The owner of each of these secrets, the actor or a project of theirs; absent for one they may not use."""
        rights = acting.rights()
        of_project = project if rights.may(Action.LAUNCH, project) else None
        with self._store.read() as session:
            usable = stored_secrets.usable(session, _own(rights), of_project, names)
        return {name: secret.owner for name, secret in usable.items()}

    def value(self, owner: SecretOwner, name: str) -> str:
        """The value of a secret, whose receiver was judged before. Raises WrongState, SecretsUnreadable."""
        with self._store.read() as session:
            secret = stored_secrets.usable(session, owner.user, owner.project, [name]).get(name)
        if secret is None:
            raise WrongState(f"The secret {name} of {owner} was removed: set it again, then ask again.")
        return self._value(secret)

    def _values(self, assignment: Assignment) -> Mapping[str, str]:
        fence, names = assignment.fence, assignment.spec.secrets
        ciphertexts = stored_secrets.given(self._store, fence) or self._give(assignment)
        return {name: self._key.decrypt(ciphertexts[name], fence, name) for name in names}

    def _give(self, assignment: Assignment) -> Mapping[str, bytes]:
        """Give an attempt its secrets; return their ciphertexts. Raises InvalidRequest."""
        fence, names = assignment.fence, assignment.spec.secrets
        with self._store.write() as session:
            if ciphertexts := stored_secrets.given_in(session, fence):
                return ciphertexts  # another node of the attempt asked at the same time
            stored_secrets.forget_ended(session)
            receiver = stored_secrets.receiver(session, assignment.run_id, fence)
            if receiver is None:
                raise InvalidRequest("secrets", "secrets: it gets none, since it has ended.")
            of_project = receiver.project if receiver.may_launch else None
            person = None if receiver.is_bound else _person(receiver.by)
            usable = stored_secrets.usable(session, person, of_project, names)
            if missing := sorted(set(names) - usable.keys()):
                raise InvalidRequest("secrets", _not_given(missing[0], receiver))
            for secret in usable.values():
                stored_secrets.give(
                    session, receiver, secret, self._key.encrypt(self._value(secret), fence, secret.name)
                )
            session.flush()
            return stored_secrets.given_in(session, fence)

    def _value(self, secret: StoredSecret) -> str:
        return self._key.decrypt(secret.ciphertext, secret.owner.user, secret.owner.project, secret.name)

    def _check_absent(self, spec: RunSpec, secret: StoredSecret) -> None:
        """Raise InvalidRequest where the spec contains the secret itself, which the store would keep and show."""
        value = self._value(secret)
        for field, content in spec.model_dump(mode="json", exclude={"secrets"}).items():
            if value in _texts(content):
                raise InvalidRequest(
                    field,
                    f"{field}: it contains the value of the secret {secret.name}, which would be stored and shown with "
                    f"the run. Leave it out: the script finds it in its environment, as {secret.name}.",
                )


def _owner_to_change(project: str | None) -> SecretOwner:
    """Whose secret it is, if the actor may change it. Raises Denied."""
    rights = acting.rights()
    if project is not None:
        rights.check(Action.MANAGE, project)
        return SecretOwner(project=project)
    _check_own(rights)
    return SecretOwner(user=_person(rights.by))


def _check_own(rights: Rights) -> None:
    if rights.only_project is not None:
        raise Denied(f"This token is for project {rights.only_project} alone: name it (--project).")
    if (refusal := rights.scope_refusal(Action.ACT)) is not None:
        raise Denied(refusal)


def _person(by: str | None) -> str:
    """The person whose secrets are meant; the program itself acts for the owner."""
    return by or OWNER


def _own(rights: Rights) -> str | None:
    """The person whose own secrets these rights use; None where a token is for one project alone."""
    return None if rights.only_project is not None else _person(rights.by)


def _check_name(name: str) -> None:
    try:
        check_variable(name)
    except ValueError as error:
        raise InvalidRequest("name", f"name: {error}.") from None


def _missing(name: str, owner: str, project: str) -> str:
    return (
        f"secrets: there is no secret {name}, neither {owner} nor of project {project}. Set it first: "
        f"rankzero secret set {name}, or, for all in the project, with --project {project}."
    )


def _not_given(name: str, receiver: Receiver) -> str:
    if receiver.may_launch:
        return _missing(name, f"of {_person(receiver.by)}", receiver.project)
    return (
        f"secrets: it gets no secret {name} of project {receiver.project}: the person who started this attempt may no "
        "longer launch there. An admin can resume it."
    )


def _texts(content: object) -> str:
    """All texts in a JSON value, one after another."""
    if isinstance(content, dict):
        return "\0".join(_texts(part) for pair in content.items() for part in pair)
    if isinstance(content, list):
        return "\0".join(map(_texts, content))
    return content if isinstance(content, str) else ""
