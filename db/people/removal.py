"""Remove a person, and give their live runs to another one."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, or_
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.exceptions import WrongState
from db.lookups import add_history
from db.models import Invitation, LoginSession, Membership, Run, Secret
from db.people import accounts, audit, notices
from db.people.consequences import live_runs_of
from db.people.users import could_become, rights_in
from domain.people.audit import AuditAction
from domain.people.rights import OWNER, Denied
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest


def remove(store: Store, name: str, now: float, heir: str | None = None) -> list[str]:
    """Remove an account: its sessions, tokens, secrets and roles end, what it did stays, its name is never given again.

    Its live runs become the heir's, if one is named. Returns their ids.
    Raises NoSuchUser, InvalidRequest, Denied, WrongState: the owner stays."""
    with store.write() as session:
        row = accounts.user(session, name)
        if row.name == OWNER:
            raise WrongState("The owner cannot be removed.")
        live = live_runs_of(session, name)
        if heir is not None:
            _give(session, live, name, heir, now)
        row.removed_at = row.sessions_since = now
        row.password_hash = row.role = None  # the address and identity stay: they do not get in again by themselves
        audit.record(session, AuditAction.REMOVED, f"person {name}")
        accounts.end_links(session, or_(Invitation.user == name, Invitation.by == name))
        session.execute(delete(Membership).where(Membership.user == name))
        session.execute(delete(LoginSession).where(LoginSession.user == name))
        session.execute(delete(Secret).where(Secret.user == name))
        accounts.end_tokens(session, name, now)
        return live


def _give(session: Session, live: Sequence[str], name: str, heir: str, now: float) -> None:
    """Make the runs another person's, who could launch each of them where it stands. Raises Denied, InvalidRequest."""
    rights = rights_in(session, heir)
    if rights is None or heir == name:
        raise InvalidRequest("runs", f"runs: there is no other person {heir[:60]!r} to give them to.")
    if not could_become(session, acting.rights(), name):  # a run's owner may use the values in its settings
        raise Denied(f"Only the owner can give away {name}'s runs: their settings may hold values that are not yours.")
    for run in (session.get_one(Run, run_id) for run_id in live):
        if (refusal := rights.refusal(Action.LAUNCH, run.project)) is not None:
            raise InvalidRequest("runs", f"runs: {heir} cannot have run {run.id}. To {heir}: {refusal}")
        run.by = heir
        add_history(session, run.id, None, now, f"given by {acting.name()} from {name}, who was removed, to {heir}")
        audit.record_of_run(session, AuditAction.GIVEN, run, {"to": heir})
        if heir != acting.name():
            notices.record_for(session, heir, run, f"{acting.name()} gave you {name}'s run {run.name}.", now)
