"""Access tokens: what scripts and command lines act with for a person, and which ones a person may make."""

from __future__ import annotations

import re
import secrets
import string
from dataclasses import dataclass

from domain.people.rights import Denied, Rights
from domain.people.roles import Action, Scope
from domain.requests.errors import InvalidRequest
from domain.text.formats import number, plural, time_span

PREFIX = "rz_"
"""Scanners for secrets find tokens by it."""
LIFETIME_S = 90 * 24 * 3600.0
"""The lifetime of tokens for which none was chosen."""
SHORTEST_LIFETIME_S, LONGEST_LIFETIME_S = 60.0, 10 * 366 * 24 * 3600.0
WITH_BUDGET = (Scope.MCP, Scope.LAUNCH, Scope.ACT)
"""The scopes of tokens that a budget bounds."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,59}")
GRANTS = {
    Scope.READ: "see what you see",
    Scope.MCP: "see what you see, propose runs, and within its budget launch them, and stop and resume its own",
    Scope.LAUNCH: "see what you see, and launch runs for you",
    Scope.ACT: "see what you see, launch runs for you, and act on them as you do: stop, resume, edit, delete",
    Scope.ADMIN: "do all that you may do, and make other tokens",
}
_LETTERS = string.ascii_letters + string.digits
_SECRET = re.compile(rb"rz_[A-Za-z0-9]{43}")


@dataclass(frozen=True)
class Bounds:
    """What the runs of a token may take."""

    budget_s: float
    """Seconds of one device, in all."""
    most_devices: int | None = None
    """Devices at one time; None: any number."""
    longest_s: float | None = None
    """Seconds that each run may train; None: any time."""


@dataclass(frozen=True)
class BudgetView(Bounds):
    """A token's bounds, and what its runs take of them."""

    used_s: float = 0.0
    """Seconds of one device that are charged, also those that queued runs have reserved."""
    devices: int = 0
    """Devices that its runs have or wait for."""


@dataclass(frozen=True)
class TokenWanted:
    """The name, bounds and lifetime of a token to be made."""

    name: str
    scope: Scope
    project: str | None = None
    """The one project that it is good for; None: all."""
    lasts_s: float | None = LIFETIME_S
    """Its lifetime; None: without end."""
    bounds: Bounds | None = None
    """None: nothing but its person's rights bounds what it launches; one of scope mcp then launches nothing."""


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
    budget: BudgetView | None = None
    """None: it has no budget."""


def bounds_in_words(bounds: Bounds) -> str:
    """Return a token's bounds in words: 20 device-hours, at most 2 devices at a time, 2 h a run."""
    return ", ".join(filter(None, (f"{number(bounds.budget_s / 3600)} device-hours", limits_in_words(bounds))))


def limits_in_words(bounds: Bounds) -> str:
    """Return what bounds single runs of a token, in words; empty where nothing does."""
    words = [f"at most {plural(bounds.most_devices, 'device')} at a time"] if bounds.most_devices else []
    words += [f"{time_span(bounds.longest_s)} a run"] if bounds.longest_s else []
    return ", ".join(words)


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
    if terms.bounds is not None:
        _check_bounds(terms.bounds, terms.scope)


def _check_bounds(bounds: Bounds, scope: Scope) -> None:
    if scope not in WITH_BUDGET:
        why = "launches nothing" if scope is Scope.READ else "could make another without one"
        rule = f"a token of scope {scope} {why}; choose the scope mcp, launch or act for one with a budget."
        raise InvalidRequest("budget_s", f"budget_s: {rule}")
    for name in ("budget_s", "most_devices", "longest_s"):
        value = getattr(bounds, name)
        if value is not None and value <= 0:
            raise InvalidRequest(name, f"{name}: must be more than 0.")


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
