"""The account of a sign-in through a provider or proxy: by identity or address, else a new one."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import User
from db.people import accounts, audit, invitations
from db.people.accounts import NewAccount
from domain.people.accounts import is_in_domains
from domain.people.audit import AuditAction
from domain.people.rights import OWNER
from domain.people.roles import Role


class Vouched(NamedTuple):
    """A person whose address somebody else has verified."""

    email: str
    identity: str | None
    """Who they are to the provider; None: a proxy says the address alone."""


class Admission(NamedTuple):
    """Who gets in without an invitation."""

    domains: tuple[str, ...] = ()
    """Only addresses of these; none: all."""
    role: Role | None = Role.VIEWER
    """The role that new people begin with."""
    makes_accounts: bool = False
    """Whether people without an account and an invitation get one."""
    vouches: bool = False
    """Whether a provider or proxy says whose an address is: then nobody claims another's by writing it down."""


class NotAdmitted(Exception):
    """This person has no account here, and may not make one; the message says why."""


def admit(store: Store, vouched: Vouched, admission: Admission, now: float, invitation: str | None = None) -> str:
    """The name of the person's account, made where they have none and may. Raises NotAdmitted, InvitationEnded."""
    if admission.domains and not is_in_domains(vouched.email, admission.domains):
        raise NotAdmitted(f"Addresses such as {vouched.email} may not sign in here.")
    with store.read() as session:
        row = _account(session, vouched)
        if row is not None and (vouched.identity is None or row.identity == vouched.identity):
            return row.name
    with store.write() as session:
        row = _account(session, vouched)
        if row is not None:
            return _joined(session, row, vouched, now)
        return _new(session, vouched, admission, now, invitation)


def _account(session: Session, vouched: Vouched) -> User | None:
    by_identity = accounts.by_identity(session, vouched.identity) if vouched.identity else None
    return by_identity or accounts.by_email(session, vouched.email)


def _joined(session: Session, row: User, vouched: Vouched, now: float) -> str:
    """Remember who an account with this address is to the provider.

    What opened it before ends, except for the owner: anyone with its invitation's link may have set that password."""
    if row.identity is not None and row.identity != vouched.identity:
        raise NotAdmitted(f"The account with the address {vouched.email} is another person's at the provider.")
    if row.identity is None and row.name != OWNER:
        row.password_hash = None
        accounts.end_tokens(session, row.name, now)
    row.identity = vouched.identity
    audit.record(session, AuditAction.ACCOUNT_CHANGED, f"person {row.name}", more={"changed": "provider"}, by=row.name)
    return row.name


def _new(session: Session, vouched: Vouched, admission: Admission, now: float, invitation: str | None) -> str:
    email, identity = vouched
    account = NewAccount(accounts.free_name(session, email), email, admission.role, identity=identity)
    if invitation is not None:
        invited = invitations.open_one(session, invitation, now).email
        if invited != email:
            raise NotAdmitted(f"The invitation is for {invited}, but you have signed in as {email}.")
        invitations.accept(session, invitation, account, now)
    elif not admission.makes_accounts or _was_removed(session, vouched):
        raise NotAdmitted(f"{email} has no account here: ask an admin for an invitation.")
    else:
        accounts.create(session, account, now)
    return account.name


def _was_removed(session: Session, vouched: Vouched) -> bool:
    same: Collection[object] = [User.email == vouched.email]
    if vouched.identity is not None:
        same = [*same, User.identity == vouched.identity]
    query = select(User.name).where(User.removed_at.is_not(None), or_(*same))  # type: ignore[arg-type]
    return session.scalar(query.limit(1)) is not None
