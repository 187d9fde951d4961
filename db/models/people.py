"""People: accounts, roles, credentials, secrets, and what everybody did."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base

NAME = String(40)


class User(Base):
    """A person; the row stays when they are removed, because names are never given twice."""

    __tablename__ = "users"

    name: Mapped[str] = mapped_column(NAME, primary_key=True)
    """What everything they did is signed with."""
    email: Mapped[str | None] = mapped_column(Text, unique=True)
    password_hash: Mapped[str | None] = mapped_column(Text)
    """Of argon2; None: they sign in with the token, at a provider or through a proxy."""
    identity: Mapped[str | None] = mapped_column(Text, unique=True)
    """Who they are to the provider: its issuer and their subject."""
    role: Mapped[str | None] = mapped_column(String(8))
    """In all projects that are not private; `owner` of one person; None: only in projects of theirs."""
    created_at: Mapped[float]
    created_by: Mapped[str | None] = mapped_column(NAME)
    last_seen_at: Mapped[float | None]
    sessions_since: Mapped[float] = mapped_column(default=0.0)
    """Sessions that began before have ended: the password was changed, or they signed out everywhere."""
    removed_at: Mapped[float | None]


class Membership(Base):
    """The role of a person in a project."""

    __tablename__ = "memberships"

    user: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), primary_key=True)
    project: Mapped[str] = mapped_column(Text, primary_key=True)
    role: Mapped[str] = mapped_column(String(8))


class PrivateProject(Base):
    """A project that exists only for its members and the owner."""

    __tablename__ = "private_projects"

    project: Mapped[str] = mapped_column(Text, primary_key=True)
    since: Mapped[float]
    by: Mapped[str | None] = mapped_column(NAME)


class LoginSession(Base):
    """A browser that is signed in."""

    __tablename__ = "login_sessions"

    secret_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Of the cookie's value."""
    user: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), index=True)
    way: Mapped[str] = mapped_column(String(16))
    """token, password, provider or link."""
    address: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[float]
    expires_at: Mapped[float]
    ended_at: Mapped[float | None]
    browser: Mapped[str | None] = mapped_column(String(60))
    """Chrome on Linux."""


class Invitation(Base):
    """A link with which one person makes an account, or sets a new password; its secret is not stored."""

    __tablename__ = "invitations"

    id: Mapped[str] = mapped_column(String(8), primary_key=True)
    email: Mapped[str] = mapped_column(Text)
    role: Mapped[str] = mapped_column(String(8))
    project: Mapped[str | None] = mapped_column(Text)
    """The role is for this project alone; None: for all that are not private."""
    user: Mapped[str | None] = mapped_column(NAME)
    """Whose new password it sets; None: it makes an account."""
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    by: Mapped[str | None] = mapped_column(NAME)
    created_at: Mapped[float]
    expires_at: Mapped[float]
    accepted_by: Mapped[str | None] = mapped_column(NAME)
    accepted_at: Mapped[float | None]
    revoked_at: Mapped[float | None]


class AccessToken(Base):
    """A token with which scripts act for a person; its secret is shown once and not stored."""

    __tablename__ = "access_tokens"

    id: Mapped[str] = mapped_column(String(8), primary_key=True)
    user: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(Text)
    scope: Mapped[str] = mapped_column(String(8))
    project: Mapped[str | None] = mapped_column(Text)
    """The one project that it is good for."""
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    budget_s: Mapped[float | None]
    """Seconds of one device that its runs may take in all; None: a token without a budget."""
    most_devices: Mapped[int | None]
    """Devices that its runs may have at one time."""
    longest_s: Mapped[float | None]
    """Seconds that each of its runs may train."""


class LoginRequest(Base):
    """A command line that waits until somebody lets it in, in a browser."""

    __tablename__ = "login_requests"

    code: Mapped[str] = mapped_column(String(16), primary_key=True)
    """What the person compares: shown in the terminal and in the browser."""
    secret_hash: Mapped[str] = mapped_column(String(64))
    """Of what the command line proves itself with; once it is let in, that is its token."""
    machine: Mapped[str] = mapped_column(Text)
    scope: Mapped[str] = mapped_column(String(8), server_default="read")
    project: Mapped[str | None] = mapped_column(Text)
    lasts_s: Mapped[float | None]
    """The token's lifetime; None: without end."""
    address: Mapped[str | None] = mapped_column(Text)
    """Where the request came from."""
    created_at: Mapped[float]
    expires_at: Mapped[float]
    user: Mapped[str | None] = mapped_column(NAME)
    """Who let it in."""
    answered_at: Mapped[float | None]
    is_refused: Mapped[bool] = mapped_column(default=False)


class Secret(Base):
    """A value that attempts get as an environment variable, encrypted with a key that is not in the store."""

    __tablename__ = "secrets"
    __table_args__ = (
        Index("secret_of_person", "user", "name", unique=True),
        Index("secret_of_project", "project", "name", unique=True),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str | None] = mapped_column(NAME)
    """Its person; None: the project's."""
    project: Mapped[str | None] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)
    by: Mapped[str | None] = mapped_column(NAME)
    """Who set it last."""
    set_at: Mapped[float]


class AttemptSecret(Base):
    """A secret as an attempt got it, for its nodes that start later and workers that restart; deleted after its end."""

    __tablename__ = "attempt_secrets"

    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)


class AuditEntry(Base):
    """Something that somebody did; rows are only ever added."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(index=True)
    by: Mapped[str | None] = mapped_column(NAME, index=True)
    via: Mapped[str | None] = mapped_column(Text)
    action: Mapped[str] = mapped_column(String(32))
    object: Mapped[str] = mapped_column(Text)
    """What it was done to: `run ab12…`, `node gpu-1`, `secret HF_TOKEN`."""
    project: Mapped[str | None] = mapped_column(Text)
    address: Mapped[str | None] = mapped_column(Text)
    """Where the request came from."""
    more: Mapped[dict[str, Any] | None]


class Notice(Base):
    """A sentence about another person's act on one's run; the row is deleted once it is read."""

    __tablename__ = "notices"

    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), index=True)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    at: Mapped[float]
    sentence: Mapped[str] = mapped_column(Text)
