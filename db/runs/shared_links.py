"""Read-only links to runs: they expire, can be revoked, and their secrets are stored as hashes only."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.exceptions import NoSuchLink
from db.models import Run, SharedLink, new_id
from db.people import audit
from db.people.ownership import ObjectKind
from db.people.permission import no_such, permit, permitted_run
from db.people.visibility import visible_among
from db.token_hashes import hash_token
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.text.formats import clock_time

DAY_S = 24 * 3600.0
DEFAULT_DAYS = 7
LONGEST_DAYS = 366
MOST_RUNS = 50
"""As in a report."""
LISTED_FOR_S = 30 * DAY_S
"""A link that has ended is listed for so long, and says why it shows nothing."""
_TOKEN = re.compile(r"([a-z0-9]{10})-[\w-]{43}", re.ASCII)


class LinkEnded(Exception):
    """The link has expired or was revoked."""


@dataclass(frozen=True)
class LinkView:
    """A link, without its secret."""

    id: str
    runs: list[str]
    created_at: float
    expires_at: float
    revoked_at: float | None
    state: str
    """valid, expired or revoked."""
    by: str | None = None
    """Who made it."""


def make(store: Store, runs: Sequence[str], days: int, now: float) -> tuple[LinkView, str]:
    """Make a link to these runs, which the actor may act on; return it and its token, which is not stored.

    Raises InvalidRequest, NoSuchRun, Denied."""
    check_terms(runs, days)
    row = SharedLink(id=new_id(), runs=list(runs), created_at=now, expires_at=now + days * DAY_S, by=acting.rights().by)
    token = f"{row.id}-{secrets.token_urlsafe(32)}"
    row.secret_hash = hash_token(token)
    with store.write() as session:
        for run_id in runs:
            permitted_run(session, Action.ACT, run_id)
        ended = or_(SharedLink.expires_at < now - LISTED_FOR_S, SharedLink.revoked_at < now - LISTED_FOR_S)
        session.execute(delete(SharedLink).where(ended))
        session.add(row)
        _write_down(session, AuditAction.SHARED, row)
    return _view(row, now), token


def check_terms(runs: Sequence[str], days: int) -> None:
    """Raise InvalidRequest for a link that shows too many runs, or for too long."""
    if not 1 <= days <= LONGEST_DAYS:
        raise InvalidRequest("days", f"days: a link is valid for 1 to {LONGEST_DAYS} days, not {days}.")
    if not 1 <= len(runs) <= MOST_RUNS:
        raise InvalidRequest("runs", f"runs: a link shows 1 to {MOST_RUNS} runs, not {len(runs)}.")


def every(store: Store, now: float) -> list[LinkView]:
    """Return the links, the newest first, and those that ended in the last 30 days; none to a hidden run."""
    with store.read() as session:
        rows = session.scalars(select(SharedLink).order_by(SharedLink.created_at.desc(), SharedLink.id)).all()
        visible = visible_among(session, {run_id for row in rows for run_id in row.runs})
        return [_view(row, now) for row in rows if visible.issuperset(row.runs)]


def revoke(store: Store, link_id: str, now: float) -> LinkView:
    """End a link at once; one that was revoked before stays so. Raises NoSuchLink, Denied."""
    with store.write() as session:
        permit(session, Action.STOP, ObjectKind.LINK, link_id)
        row = session.get(SharedLink, link_id)
        if row is None:
            raise no_such(ObjectKind.LINK, link_id)
        if row.revoked_at is None:
            row.revoked_at = now
            _write_down(session, AuditAction.LINK_REVOKED, row)
        return _view(row, now)


def opened(store: Store, token: str, now: float) -> LinkView:
    """Return the valid link of a token. Raises NoSuchLink, LinkEnded."""
    match = _TOKEN.fullmatch(token)
    with store.read() as session:
        row = None if match is None else session.get(SharedLink, match[1])
    if row is None or not hmac.compare_digest(row.secret_hash, hash_token(token)):
        raise NoSuchLink("There is no such link.")
    view = _view(row, now)
    if view.revoked_at is not None:
        raise LinkEnded(f"This link was revoked on {clock_time(view.revoked_at)} UTC.")
    if view.state == "expired":
        raise LinkEnded(f"This link expired on {clock_time(view.expires_at)} UTC.")
    return view


def _write_down(session: Session, action: AuditAction, link: SharedLink) -> None:
    """One entry for each project that the link shows runs of."""
    projects = session.scalars(select(Run.project).where(Run.id.in_(link.runs)).distinct())
    for project in sorted(projects):
        runs = session.scalars(select(Run.id).where(Run.id.in_(link.runs), Run.project == project))
        audit.record(session, action, f"link {link.id}", project, {"runs": sorted(runs)})


def _view(row: SharedLink, now: float) -> LinkView:
    state = "revoked" if row.revoked_at is not None else "valid" if now < row.expires_at else "expired"
    return LinkView(row.id, list(row.runs), row.created_at, row.expires_at, row.revoked_at, state, row.by)
