"""The roles of people, the scopes of tokens, and the least of both that each kind of action needs."""

from __future__ import annotations

from enum import Enum, StrEnum


class Role(StrEnum):
    """What a person is in a project, or everywhere; each may do what those before it may."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"
    """One person: the installation's."""

    @property
    def rank(self) -> int:
        """Its place among the roles; higher may do more."""
        return list(Role).index(self)


class Scope(StrEnum):
    """The most that a token allows, whatever the role of its owner."""

    READ = "read"
    MCP = "mcp"
    """For coding agents: propose; within a budget launch, and stop, resume or edit what was launched with the token."""
    LAUNCH = "launch"
    ACT = "act"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Its place among the scopes; higher may do more."""
        return list(Scope).index(self)


class Action(Enum):
    """A kind of action: the least role and scope, whether a member needs to own its object, its words, and whether a
    token of scope mcp allows it, although its scope is lower."""

    SEE = Role.VIEWER, Scope.READ, False, "see this"
    STOP = Role.MEMBER, Scope.ACT, True, "stop this", True
    LAUNCH = Role.MEMBER, Scope.LAUNCH, False, "launch", True
    ADD = Role.MEMBER, Scope.LAUNCH, False, "watch runs, set alerts or upload archives"
    STEER = Role.MEMBER, Scope.ACT, True, "act on this", True
    ACT = Role.MEMBER, Scope.ACT, True, "act on this"
    SEE_DELETED = Role.MEMBER, Scope.READ, False, "see deleted runs"
    ERASE = Role.ADMIN, Scope.ADMIN, False, "delete runs for good"
    MANAGE = Role.ADMIN, Scope.ADMIN, False, "manage this project"
    OPERATE = Role.ADMIN, Scope.ADMIN, False, "manage nodes and people"
    AUDIT = Role.ADMIN, Scope.ADMIN, False, "read the audit log"

    def __init__(
        self, role: Role, scope: Scope, needs_ownership: bool, words: str, is_for_agents: bool = False
    ) -> None:
        self.role, self.scope, self.needs_ownership, self.words = role, scope, needs_ownership, words
        self.is_for_agents = is_for_agents

    @property
    def reaches_own_hidden(self) -> bool:
        """Whether people may do it to their own runs, sweeps and alerts in projects that are hidden from them."""
        return self in (Action.SEE, Action.STOP)


GIVEN_ROLES = (Role.VIEWER, Role.MEMBER, Role.ADMIN)
"""The roles that people are given; the owner is one from the start."""
EVERYWHERE = "all projects that are not private"
"""Where a role counts that is given in no single project."""


def in_words(role: Role, project: str | None = None) -> str:
    """Put what somebody is by a role into words: an admin of project vision."""
    article = "an" if role in (Role.ADMIN, Role.OWNER) else "a"
    return f"{article} {role} of {f'project {project}' if project else EVERYWHERE}"
