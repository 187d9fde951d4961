"""What is written down of everybody: the actions of the audit log, and one of its entries."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from domain.people.accounts import WAYS
from domain.text.columns import Column, Columns
from domain.text.formats import ago, signature


class AuditAction(StrEnum):
    """What somebody did, as the audit log names it."""

    SIGNED_IN = "signed-in"
    SIGN_IN_REFUSED = "sign-in-refused"
    SIGNED_OUT = "signed-out"
    ACCOUNT_CHANGED = "account-changed"
    INVITED = "invited"
    PASSWORD_LINK_MADE = "password-link-made"
    INVITATION_REVOKED = "invitation-revoked"
    JOINED = "joined"
    ROLE_CHANGED = "role-changed"
    REMOVED = "removed"
    PROJECT_MADE_PRIVATE = "project-made-private"
    PROJECT_MADE_PUBLIC = "project-made-public"
    TOKEN_MADE = "token-made"
    TOKEN_REVOKED = "token-revoked"
    LOGIN_REFUSED = "login-refused"
    """A command line that somebody did not let in; one that is let in gets a token."""
    LAUNCHED = "launched"
    WATCHED = "watched"
    """A run that somebody started elsewhere and has watched here."""
    LAUNCH_REFUSED = "launch-refused"
    """One that its token's budget does not cover."""
    STOPPED = "stopped"
    GIVEN = "given"
    """A live run, to another person, because its own was removed."""
    RESUMED = "resumed"
    EDITED = "edited"
    DELETED = "deleted"
    RESTORED = "restored"
    ERASED = "erased"
    """A deleted run, with its files; by nobody once its days were over."""
    IMPORTED = "imported"
    UPLOADED = "uploaded"
    DOWNLOADED = "downloaded"
    SHARED = "shared"
    LINK_REVOKED = "link-revoked"
    STACKS_ASKED = "stacks-asked"
    PROFILED = "profiled"
    CHECKPOINT_ASKED = "checkpoint-asked"
    """One that never arrived complete is sent again."""
    CHECKPOINT_MERGE = "checkpoint-merge"
    CHECKPOINT_PUSH = "checkpoint-push"
    CHECKPOINT_SHOW = "checkpoint-show"
    CHECKPOINT_DIFF = "checkpoint-diff"
    CHECKPOINT_TASK_CANCELLED = "checkpoint-task-cancelled"
    CHECKPOINT_PINNED = "checkpoint-pinned"
    CHECKPOINT_UNPINNED = "checkpoint-unpinned"
    CHECKPOINT_DELETED = "checkpoint-deleted"
    """By nobody where a retention rule lets it go."""
    CHECKPOINT_RESTORED = "checkpoint-restored"
    BIN_EMPTIED = "bin-emptied"
    RETENTION_SET = "retention-set"
    VIEW_SAVED = "view-saved"
    VIEW_DELETED = "view-deleted"
    SECRET_SET = "secret-set"
    SECRET_REMOVED = "secret-removed"
    SECRET_GIVEN = "secret-given"
    ALERT_MADE = "alert-made"
    ALERT_REMOVED = "alert-removed"
    ALERT_TESTED = "alert-tested"
    DRAINED = "drained"
    UNDRAINED = "undrained"
    NODE_RELEASED = "node-released"
    NODE_REMOVED = "node-removed"
    HARDWARE_TESTED = "hardware-tested"
    PREFLIGHT = "preflight"
    BACKUP = "backup"
    TOOL_CALLED = "tool-called"
    """By a coding agent; what it launches or does to a run has an entry of its own as well."""


class AuditEntryView(BaseModel):
    """One entry of the audit log."""

    id: int
    at: float
    by: str | None
    """None: the program by its own rules, or somebody who is not signed in."""
    via: str | None
    action: str
    object: str
    project: str | None
    address: str | None
    """Where the request came from."""
    more: dict[str, Any] | None


def columns_of(now: float) -> Columns[AuditEntryView]:
    """Return the columns of the list of entries."""
    return [
        Column("when", lambda entry: ago(entry.at, now)),
        Column("person", lambda entry: signature(actor(entry), entry.via)), Column("action"),
        Column("what", lambda entry: f"{entry.object} {details(entry)}".rstrip()), Column("project"),
        Column("from", lambda entry: entry.address),
    ]  # fmt: skip


def actor(entry: AuditEntryView) -> str:
    """Return who did it; the program has no name, nor has somebody who is not signed in."""
    return entry.by or ("somebody" if entry.action == AuditAction.SIGN_IN_REFUSED else "dashboard")


def details(entry: AuditEntryView) -> str:
    """Return what else is known of an entry, in words: names, roles, ways to sign in."""
    return ", ".join(filter(None, (_detail(name, value) for name, value in (entry.more or {}).items())))


_SAID_BY_ITSELF = frozenset({"name", "email", "changed", "rule", "device", "nodes"})


def _detail(name: str, value: object) -> str:
    if name == "role":
        return f"as {value}" if value else "without a role"
    if name == "way":
        return WAYS.get(str(value), str(value))
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "" if value in ("", None) else shown if name in _SAID_BY_ITSELF else f"{name} {shown}"
