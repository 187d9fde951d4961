"""The rules of accounts: names, e-mail addresses, passwords; and how people, invitations and projects are shown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from domain.people.roles import GIVEN_ROLES, Role
from domain.requests.errors import InvalidRequest

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f<>\"',;:()\[\]\\]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,187}[A-Za-z0-9])")
WAYS = {
    "token": "with the token printed at start", "password": "with a password", "provider": "at the provider",
    "link": "by an invitation", "proxy": "through the proxy",
}  # fmt: skip
"""The ways of signing in, in words."""
SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1000


def checked_name(text: str) -> str:
    """The name of a new account, which everything that the person does is signed with. Raises InvalidRequest."""
    name = text.strip()
    if not NAME.fullmatch(name):
        rule = "name must have 1 to 40 of the characters a-z, 0-9, . _ - and begin with a letter or digit."
        raise InvalidRequest("name", rule)
    return name


def checked_email(text: str) -> str:
    """An e-mail address as it is stored and compared. Raises InvalidRequest."""
    email = normalised_email(text)
    if not EMAIL.fullmatch(email):
        raise InvalidRequest("email", "email must be an address such as ana@example.org.")
    return email


def normalised_email(text: str) -> str:
    """The address in the one form in which two of the same person are equal."""
    return unicodedata.normalize("NFC", text.strip()).lower()


def checked_password(text: str, name: str, email: str | None = None) -> str:
    """A new password. Raises InvalidRequest."""
    if len(text) < SHORTEST_PASSWORD or len(text) > LONGEST_PASSWORD:
        rule = f"password must have at least {SHORTEST_PASSWORD} characters, and at most {LONGEST_PASSWORD}."
        raise InvalidRequest("password", rule)
    if len(set(text)) < 4 or text.casefold() in {name, email, (email or "").partition("@")[0]}:
        raise InvalidRequest("password", "password must not be your name, your address or a few repeated characters.")
    return text


def checked_role(text: str | None) -> Role | None:
    """A role that people are given, None for none. Raises InvalidRequest."""
    if text in (None, "none"):
        return None
    if text not in GIVEN_ROLES:
        raise InvalidRequest("role", f"role must be one of {', '.join(GIVEN_ROLES)} or none, got {text!r}.")
    return Role(text)


def proposed_name(email: str, used_names: Collection[str]) -> str:
    """A free name for the person with this address: the part before the @, with a number if that is taken."""
    plain = unicodedata.normalize("NFKD", email.partition("@")[0].partition("+")[0]).encode("ascii", "ignore").decode()
    stem = re.sub(r"[^a-z0-9._-]+", "-", plain.lower()).strip("._-")[:34] or "person"
    number, name = 1, stem
    while name in used_names:
        number += 1
        name = f"{stem}{number}"
    return name


def is_in_domains(email: str, domains: Collection[str]) -> bool:
    """Whether the address is of one of these domains, themselves and not those below them."""
    return email.rpartition("@")[2] in {domain.lower().lstrip("@") for domain in domains}


@dataclass(frozen=True)
class UserView:
    """A person as others see them."""

    name: str
    email: str | None
    role: Role | None
    """In all projects that are not private; None: in none but those of `projects`."""
    projects: dict[str, Role]
    """Roles of single projects; those hidden from the visitor are omitted."""
    last_seen_at: float | None
    created_at: float
    has_password: bool
    has_identity: bool
    """Whether they have signed in at the provider."""


class InvitationView(BaseModel):
    """An invitation, without its secret."""

    model_config = ConfigDict(frozen=True)

    id: str
    email: str
    role: Role
    project: str | None
    user: str | None
    """Whose new password the link sets; None: it makes an account."""
    by: str | None
    created_at: float
    expires_at: float
    accepted_by: str | None
    accepted_at: float | None
    revoked_at: float | None

    def state(self, now: float) -> str:
        """open, accepted, revoked or expired."""
        if self.accepted_at is not None:
            return "accepted"
        if self.revoked_at is not None:
            return "revoked"
        return "open" if now < self.expires_at else "expired"


@dataclass(frozen=True)
class ProjectAccessView:
    """A project as one person sees it."""

    name: str
    is_private: bool
    role: Role | None
    """The person's own."""


@dataclass(frozen=True)
class MemberView:
    """A person with a role in a project."""

    name: str
    role: Role
    is_everywhere: bool
    """Whether the role is for all projects, not for this one."""


@dataclass(frozen=True)
class SessionView:
    """A browser of a person that is signed in."""

    id: str
    way: str
    """One of WAYS."""
    address: str | None
    created_at: float
    expires_at: float
    is_current: bool
    browser: str | None
    """Chrome on Linux."""
