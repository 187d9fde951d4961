"""Invitations: links for one account, or a new password of one; they expire, can be revoked, and are good once."""

from __future__ import annotations

import math
import secrets

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.exceptions import NoSuch
from db.models import Invitation, new_id
from db.people import accounts, audit, users
from db.people.accounts import NewAccount
from db.token_hashes import hash_token
from domain.people.accounts import InvitationView
from domain.people.audit import AuditAction
from domain.people.rights import PROGRAM
from domain.people.roles import Action, Role
from domain.requests.errors import InvalidRequest

DAY_S = 24 * 3600.0
DEFAULT_DAYS = 7.0
LONGEST_DAYS = 90.0
SHORTEST_S = 60.0
KEPT_S = 30 * DAY_S
"""How long an invitation that has ended is listed, and its link says what became of it."""


class NoSuchInvitation(NoSuch):
    """There is no invitation of that id or link."""


class InvitationEnded(Exception):
    """The invitation was used or revoked, or has expired; the message says which."""


def make(
    store: Store, email: str, role: Role, project: str | None, days: float, now: float, user: str | None = None
) -> tuple[InvitationView, str]:
    """Invite somebody, or let `user`, who has this address, set a new password; an earlier open invitation to the same
    ends.

    Return the invitation and its secret, which is not stored. Raises InvalidRequest."""
    _check_days(days)
    secret = secrets.token_urlsafe(32)
    row = Invitation(
        id=new_id()[:8],
        email=email,
        role=role,
        project=project,
        user=user,
        secret_hash=hash_token(secret),
        by=acting.rights().by,
        created_at=now,
        expires_at=now + days * DAY_S,
    )
    with store.write() as session:
        accounts.require_free_email(session, email, but=user)
        _forget_old(session, now)
        _revoke_same(session, row, now)
        session.add(row)
        more = {"email": email, "role": role.value} if user is None else {"person": user}
        action = AuditAction.INVITED if user is None else AuditAction.PASSWORD_LINK_MADE
        audit.record(session, action, f"invitation {row.id}", project, more)
    return _view(row), secret


def _check_days(days: float) -> None:
    if not (math.isfinite(days) and SHORTEST_S <= days * DAY_S <= LONGEST_DAYS * DAY_S):
        raise InvalidRequest("days", f"days must be a number up to {LONGEST_DAYS:.0f}, of at least a minute.")


def _revoke_same(session: Session, row: Invitation, now: float) -> None:
    """End the open invitation of the same address to the same project."""
    same = (Invitation.email == row.email, Invitation.project.is_not_distinct_from(row.project))
    session.execute(update(Invitation).where(*same, *accounts.OPEN_LINK).values(revoked_at=now))


def _forget_old(session: Session, now: float) -> None:
    session.execute(delete(Invitation).where(Invitation.expires_at < now - KEPT_S))


def every(store: Store) -> list[InvitationView]:
    """All invitations, newest first, those that have ended too."""
    with store.read() as session:
        return [_view(row) for row in session.scalars(select(Invitation).order_by(Invitation.created_at.desc()))]


def one(store: Store, invitation_id: str) -> InvitationView:
    """The invitation of that id. Raises NoSuchInvitation."""
    with store.read() as session:
        return _view(_row(session, invitation_id))


def _row(session: Session, invitation_id: str) -> Invitation:
    row = session.get(Invitation, invitation_id)
    if row is None:
        raise no_such(invitation_id)
    return row


def no_such(invitation_id: str) -> NoSuchInvitation:
    """The error for an id that no invitation has, and for one that the actor may not know of."""
    return NoSuchInvitation(f"There is no invitation {invitation_id!r}.")


def revoke(store: Store, invitation_id: str, now: float) -> InvitationView:
    """End an invitation that is not accepted yet. Raises NoSuchInvitation."""
    with store.write() as session:
        row = _row(session, invitation_id)
        if row.accepted_at is None and row.revoked_at is None:
            row.revoked_at = now
            more = {"email": row.email}
            audit.record(session, AuditAction.INVITATION_REVOKED, f"invitation {row.id}", row.project, more)
        return _view(row)


def of_secret(store: Store, secret: str, now: float) -> InvitationView:
    """The open invitation of a link. Raises NoSuchInvitation, InvitationEnded."""
    with store.read() as session:
        return _view(open_one(session, secret, now))


def accept(session: Session, secret: str, account: NewAccount, now: float) -> None:
    """Make the account that the invitation is for, with its role. Raises NoSuchInvitation, InvitationEnded,
    InvalidRequest."""
    row = open_one(session, secret, now)
    if row.user is not None:
        raise NoSuchInvitation("This link sets a new password, and makes no account.")
    role = Role(row.role)
    accounts.create(session, account._replace(email=row.email, role=None if row.project else role), now)
    if row.project:
        accounts.set_membership(session, account.name, row.project, role)
    row.accepted_by, row.accepted_at = account.name, now


def set_password(session: Session, secret: str, password_hash: str, now: float) -> str:
    """Set the password of the account that the link is for; returns its name. Raises NoSuchInvitation, InvitationEnded,
    NoSuchUser."""
    row = open_one(session, secret, now)
    if row.user is None:
        raise NoSuchInvitation("This link makes an account.")
    row.accepted_by, row.accepted_at = row.user, now
    session.flush()
    accounts.change_password(session, row.user, password_hash, row.id)
    return row.user


def open_one(session: Session, secret: str, now: float) -> Invitation:
    """The row of a link's open invitation. Raises NoSuchInvitation, InvitationEnded."""
    row = session.scalar(select(Invitation).where(Invitation.secret_hash == hash_token(secret)))
    if row is None:
        raise NoSuchInvitation("There is no such invitation.")
    state = _view(row).state(now)
    if state == "open" and not _is_permitted(session, row):
        state = "not permitted"
    if state != "open":
        raise InvitationEnded(f"This {'link' if row.user else 'invitation'} {_ENDED[state]}.")
    return row


def _is_permitted(session: Session, row: Invitation) -> bool:
    """Whether its maker may still give what it gives: otherwise somebody who was removed could let themselves in."""
    rights = PROGRAM if row.by is None else users.rights_in(session, row.by)
    if rights is None:
        return False
    if row.user is not None:
        return users.could_become(session, rights, row.user)
    return rights.may(Action.OPERATE if row.project is None else Action.MANAGE, row.project)


_ENDED = {
    "not permitted": "ended, because its maker may no longer do so",
    "accepted": "has been used",
    "revoked": "was revoked",
    "expired": "has expired",
}


def _view(row: Invitation) -> InvitationView:
    return InvitationView.model_validate(row, from_attributes=True)
