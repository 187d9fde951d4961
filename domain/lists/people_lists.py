"""Lists of people, and of the tokens that let them or nodes in. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.agents.budget import left
from domain.text.columns import Column, Columns, Figure
from domain.text.formats import (
    ago,
    clock_minute,
    duration_words,
)

if TYPE_CHECKING:
    from domain.people.accounts import UserView
    from domain.people.tokens import AccessTokenView
    from domain.views import JoinTokenView


def people(now: float) -> Columns[UserView]:
    """Return the columns of everybody with an account."""
    return [
        Column("name"), Column("e-mail", lambda person: person.email),
        Column("role", lambda person: person.role or "none"), Column("in projects", roles_in_projects),
        Column("last seen", lambda person: ago(person.last_seen_at, now)),
    ]  # fmt: skip


def roles_in_projects(person: UserView) -> str:
    """Return a person's roles in single projects: admin of speech, member of vision."""
    return ", ".join(f"{role} of {project}" for project, role in sorted(person.projects.items()))


def access_tokens(now: float) -> Columns[AccessTokenView]:
    """Return the columns of access tokens."""
    return [
        Column("name"), Column("of", lambda token: token.user), Column("scope"),
        Column("project", lambda token: token.project or "all"), Column("state", lambda token: end_of(token, now)),
        Column("left", lambda token: left(token.budget) + " h" if token.budget else None),
        Column("last used", lambda token: ago(token.last_used_at, now)),
    ]  # fmt: skip


def end_of(token: AccessTokenView, now: float) -> str:
    """Return when an access token ends, in words."""
    if token.expires_at is None:
        return "until revoked"
    end = token.expires_at
    return f"until {clock_minute(end)}" if now < end else f"expired {ago(end, now)}"


def join_tokens(now: float) -> Columns[JoinTokenView]:
    """Return the columns of join tokens."""
    return [
        Column("id"), Column("name"), Column("state", lambda token: f"{state_of(token, now)} {lasting(token, now)}"),
        Figure("used", lambda token: token.uses), Column("last", lambda token: ago(token.last_used_at, now)),
    ]  # fmt: skip


def state_of(token: JoinTokenView, now: float) -> str:
    """Return a join token's state: valid, revoked or expired."""
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if now < token.expires_at else "expired"


def lasting(token: JoinTokenView, now: float) -> str:
    """Return how long a join token is still valid, or how long ago it ended."""
    ended_at = token.expires_at if token.revoked_at is None else token.revoked_at
    if state_of(token, now) != "valid":
        return ago(ended_at, now)
    left_s = token.expires_at - now + 59  # a token made for a day shows 24 h, not 23
    return f"for {duration_words(left_s)} more, until {clock_minute(token.expires_at)}"
