"""Access tokens: what scripts and command lines act with for a person, and which ones a person may make."""

from __future__ import annotations

import re
import secrets
import string
from dataclasses import dataclass

from domain.people.rights import Denied, Rights
from domain.people.roles import Action, Scope
from domain.requests.errors import InvalidRequest

PREFIX = "rz_"
"""Scanners for secrets find tokens by it."""
LIFETIME_S = 90 * 24 * 3600.0
"""The lifetime of tokens for which none was chosen."""
SHORTEST_LIFETIME_S, LONGEST_LIFETIME_S = 60.0, 10 * 366 * 24 * 3600.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,59}")
GRANTS = {
    Scope.READ: "see what you see",
    Scope.LAUNCH: "see what you see, and launch runs for you",
    Scope.ACT: "see what you see, launch runs for you, and act on them as you do: stop, resume, edit, delete",
    Scope.ADMIN: "do all that you may do, and make other tokens",
}
_LETTERS = string.ascii_letters + string.digits
_SECRET = re.compile(rb"rz_[A-Za-z0-9]{43}")


@dataclass(frozen=True)
class TokenWanted:
    """The name, bounds and lifetime of a token to be made."""

    name: str
    scope: Scope
    project: str | None = None
    """The one project that it is good for; None: all."""
    lasts_s: float | None = LIFETIME_S
    """Its lifetime; None: without end."""


@dataclass(frozen=True)
class AccessTokenView:
    """A token, without its secret."""

    name: str
    user: str
    scope: Scope
    project: str | None
    created_at: float
    expires_at: float | None
    last_used_at: float | None


def new_secret() -> str:
    """A secret of 256 random bits."""
    return PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(43))


def is_secret(token: bytes) -> bool:
    """Whether this has the form of a token's secret."""
    return _SECRET.fullmatch(token) is not None


def check_form(terms: TokenWanted) -> None:
    """Check a token's name and lifetime. Raises InvalidRequest."""
    if not NAME.fullmatch(terms.name):
        rule = (
            "name must begin with a letter or digit and have at most 60 characters: letters, digits, . _ - @, blanks."
        )
        raise InvalidRequest("name", rule)
    lasts_s = terms.lasts_s
    if lasts_s is not None and not SHORTEST_LIFETIME_S <= lasts_s <= LONGEST_LIFETIME_S:
        raise InvalidRequest("lasts_s", "lasts_s: a token must be valid for at least a minute and at most ten years.")


def check_token(terms: TokenWanted, rights: Rights) -> None:
    """Check that these rights suffice to make this token. Raises InvalidRequest, Denied."""
    check_form(terms)
    if rights.by is None:
        raise Denied("Only a person can have tokens.")
    if rights.scope is not Scope.ADMIN:
        raise Denied(f"The scope of {rights.via} is {rights.scope}: only you or a token of scope admin makes tokens.")
    if rights.only_project not in (None, terms.project):
        raise Denied(f"{rights.via} is for project {rights.only_project} alone, and so is a token made with it.")
    if terms.project is not None:
        rights.check(Action.SEE, terms.project)
