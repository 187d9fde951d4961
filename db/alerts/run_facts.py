"""Read what alert rules depend on: runs that are queued or live, and those that have ended lately."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session, aliased

from db.engine import Store
from db.models import Attempt, FindingRow, ImportedRun, Run
from domain.alerts.judgement import OpenFinding, RunFacts
from domain.messages import LIVE_STATES, State


def run_facts(store: Store, ended_since: float) -> list[RunFacts]:
    """The latest attempts of all runs that are queued or live, or ended at or after a time; not those imported."""
    later = aliased(Attempt)
    has_later = select(later.fence).where(later.run_id == Attempt.run_id, later.number > Attempt.number).exists()
    query = (
        select(Run.name, Run.project, Attempt)
        .join(Run, Run.id == Attempt.run_id)
        .where(_is_current(ended_since), ~has_later, Attempt.run_id.not_in(select(ImportedRun.run_id)))
        .order_by(Attempt.fence)
    )
    with store.read() as session:
        rows = [(name, project, attempt) for name, project, attempt in session.execute(query)]
        open_findings = _findings(session, [attempt.fence for _, _, attempt in rows if attempt.state in LIVE_STATES])
        return [_facts(name, project, attempt, open_findings[attempt.fence]) for name, project, attempt in rows]


def _is_current(ended_since: float) -> ColumnElement[bool]:
    # Both have an index.
    return or_(Attempt.state.in_([State.QUEUED, *LIVE_STATES]), Attempt.ended_at >= ended_since)


def _findings(session: Session, fences: Sequence[int]) -> dict[int, list[OpenFinding]]:
    query = select(FindingRow).where(FindingRow.fence.in_(fences), FindingRow.gone_at.is_(None))
    by_fence: dict[int, list[OpenFinding]] = defaultdict(list)
    for row in session.scalars(query.order_by(FindingRow.id)):
        by_fence[row.fence].append(OpenFinding(row.kind, row.evidence, row.first_at))
    return by_fence


def _facts(name: str, project: str, attempt: Attempt, findings: Sequence[OpenFinding]) -> RunFacts:
    return RunFacts(
        run_id=attempt.run_id,
        name=name,
        project=project,
        attempt=attempt.number,
        fence=attempt.fence,
        state=State(attempt.state),
        message=attempt.message,
        created_at=attempt.created_at,
        ended_at=attempt.ended_at,
        waiting_for=attempt.waiting_for,
        findings=tuple(findings),
    )
