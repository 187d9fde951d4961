"""The rights of a request's sender, and the sentence that denies an action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from domain.people.roles import Action, Role, Scope
from domain.text import formats


class Denied(Exception):
    """The action needs a role or scope that its sender lacks; the message says which, and who can give it."""


@dataclass(frozen=True)
class Rights:
    """What a person may do here, by their roles and, where a token speaks for them, within its bounds."""

    by: str | None
    """The person's name; None: the program itself."""
    via: str | None = None
    """What acted for the person: `token ci`, `sweep k3…`, `alert p0…`, `worker gpu-1`; None: the person."""
    everywhere: Role | None = None
    """The role in all projects that are not private; None: none."""
    in_projects: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))
    """Roles of single projects; they count where they are higher, and are the only ones in private projects."""
    private: frozenset[str] = frozenset()
    """All private projects."""
    scope: Scope = Scope.ADMIN
    only_project: str | None = None
    """The one project that a token is good for."""
    token_id: str | None = None
    """The id of the token whose budget pays for what is launched; None: no budget bounds it."""

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner of the installation, or the program itself."""
        return self.everywhere is Role.OWNER

    @property
    def reads_all_files(self) -> bool:
        """Whether the dashboard reads any file of its machine for this person, not only what is for everybody there."""
        return self.is_owner and self.scope is Scope.ADMIN and self.only_project is None

    def holds_values_of(self, person: str | None) -> bool:
        """Whether the values in this person's settings may be used in other programs: by them, and the owner."""
        return self.is_owner or (person is not None and person == self.by)

    @property
    def sees_everything(self) -> bool:
        """Whether no project is hidden."""
        return self.only_projects is None and not self.hidden

    @property
    def hidden(self) -> frozenset[str]:
        """The private projects that do not exist for this person; those outside `only_project` are not listed."""
        if self.is_owner:
            return frozenset()
        return self.private.difference(self.in_projects)

    @property
    def only_projects(self) -> frozenset[str] | None:
        """The only projects that exist for this person; None: all but the hidden ones."""
        own = frozenset(self.in_projects) if self.everywhere is None else None
        if self.only_project is None:
            return own
        return frozenset({self.only_project}) if own is None else own & {self.only_project}

    def role_in(self, project: str) -> Role | None:
        """The role in a project; None where the project does not exist for this person."""
        if self.only_project not in (None, project):
            return None
        if self.is_owner:
            return Role.OWNER
        own = self.in_projects.get(project)
        roles = [own] if project in self.private else [own, self.everywhere]
        return max((role for role in roles if role), key=lambda role: role.rank, default=None)

    def sees(self, project: str, owner: str | None = None) -> bool:
        """Whether the project exists for this person; with `owner`, whether what is this owner's exists in it."""
        return self.role_in(project) is not None or self._is_own(project, owner)

    @property
    def sees_own_hidden(self) -> bool:
        """Whether this person sees their own runs in hidden projects too; nobody does without a role anywhere."""
        return self.by is not None and (self.everywhere is not None or bool(self.in_projects))

    def refusal(
        self, action: Action, project: str | None, owner: str | None = None, token_id: str | None = None
    ) -> str | None:
        """Return the sentence with which the action is denied, or None where it is allowed.

        `project` is None for what belongs to no project; `owner` is the person whose object it is, `token_id` the
        token with a budget that it was made with."""
        role = (None if self.only_project else self.everywhere) if project is None else self.role_in(project)
        if role is None and action.reaches_own_hidden and self._is_own(project, owner):
            return self._token_refusal(action, token_id)
        where = "this installation" if project is None else f"project {project}"
        if role is None or role.rank < action.role.rank:
            return _too_low(action, role, where, self.only_project) + self._elsewhere(action)
        if (refusal := self._token_refusal(action, token_id)) is not None:
            return refusal
        is_own = owner is not None and owner == self.by
        if action.needs_ownership and not is_own and role.rank < Role.ADMIN.rank:
            return f"It belongs to {owner or 'somebody else'}: only they and an admin of {where} may {action.words}."
        return None

    def _is_own(self, project: str | None, owner: str | None) -> bool:
        """Whether this owner is this person, who sees what is theirs even where its project is hidden."""
        return (
            self.sees_own_hidden and owner == self.by and project is not None and self.only_project in (None, project)
        )

    def _elsewhere(self, action: Action) -> str:
        """The projects to launch in instead, for a person refused in one that they perhaps never chose."""
        is_free = action is Action.LAUNCH and self.only_project is None
        return f" You may launch in {formats.as_list(own[:3])}." if is_free and (own := self.own_to_launch_in()) else ""

    def own_to_launch_in(self) -> list[str]:
        """The projects in which the person may launch by a role of their own there, by name."""
        return [name for name, role in sorted(self.in_projects.items()) if role.rank >= Action.LAUNCH.role.rank]

    def scope_refusal(self, action: Action) -> str | None:
        """Return the sentence with which the scope denies the action, or None where it allows it."""
        is_allowed = self.scope.rank >= action.scope.rank or (self.scope is Scope.MCP and action.is_for_agents)
        return None if is_allowed else _out_of_scope(action, self.scope, self.via)

    def _token_refusal(self, action: Action, token_id: str | None) -> str | None:
        """Return the sentence with which the token denies the action on what was made with the token `token_id`."""
        if (refusal := self.scope_refusal(action)) is not None:
            return refusal
        is_bound = self.scope is Scope.MCP and action.needs_ownership
        if not is_bound or (token_id is not None and token_id == self.token_id):
            return None
        return (
            f"It was not made with {self.via}: a token of scope {Scope.MCP} may only {action.words} where it launched "
            f"it. One of scope {Scope.ACT} with a budget may act on all that its person may."
        )

    def refusal_anywhere(self, action: Action) -> str | None:
        """Return the sentence with which the action is denied in every project, or None where one may allow it."""
        roles = [("this installation", self.everywhere)] if self.everywhere else []
        roles += [(f"project {project}", role) for project, role in sorted(self.in_projects.items())]
        where, highest = max(roles, key=lambda one: one[1].rank, default=("this installation", None))
        if highest is not None and highest.rank >= action.role.rank:
            return self.scope_refusal(action)
        if len(roles) > 1:
            return f"Your highest role is {highest}: {_who_may(action)}. Ask an admin."
        return _too_low(action, highest, where, None)

    def check(self, action: Action, project: str | None, owner: str | None = None, token_id: str | None = None) -> None:
        """Raise Denied unless the action is allowed."""
        if (refusal := self.refusal(action, project, owner, token_id)) is not None:
            raise Denied(refusal)

    def may(self, action: Action, project: str | None, owner: str | None = None, token_id: str | None = None) -> bool:
        """Whether the action is allowed."""
        return self.refusal(action, project, owner, token_id) is None


OWNER = "owner"
"""The name of the person whom the token printed at start signs in."""
NOBODY = Rights(None)
"""Visitors who are not signed in, and workers: they may do nothing that people may."""
PROGRAM = Rights(None, everywhere=Role.OWNER)
"""The program itself: what it does by its own rules, for nobody."""


def rights_of_owner() -> Rights:
    """The rights of the person with the token printed at start."""
    return Rights(OWNER, everywhere=Role.OWNER)


def _out_of_scope(action: Action, scope: Scope, via: str | None) -> str:
    subject = via or "this token"
    return (
        f"The scope of {subject} is {scope}: it may not {action.words}. "
        f"Make one with `rankzero token create NAME --scope {action.scope}`."
    )


def _too_low(action: Action, role: Role | None, where: str, only_project: str | None) -> str:
    if only_project is not None and role is None:
        return f"This token is for project {only_project} alone: name that one, or use another token."
    have = f"You are a {role} of {where}" if role else f"You have no role in {where}"
    return f"{have}: {_who_may(action)}. Ask an admin of {where}."


def _who_may(action: Action) -> str:
    """Only members can launch."""
    return f"only {action.role}s can {action.words}"
