"""What is wrong with attempts that train: facts of their nodes, each told once in the history."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, FindingRow
from db.records.history import add_history
from db.records.lookups import attempt_scope, part_of_node
from domain.messages import Finding
from domain.views import FindingView


def findings_reported(
    store: Store, node_id: str, fence: int, node_rank: int, findings: list[Finding], now: float
) -> str | None:
    """Take a node's complete list; returns the run's id when it differs from before.

    Raises NotYours, Superseded."""
    with store.write(attempt_scope(fence)) as session:
        _, attempt = part_of_node(session, node_id, fence, node_rank)
        known = {row.kind: row for row in session.scalars(_of_part(fence, node_rank))}
        changed = [_keep(session, attempt, node_rank, each, known.get(each.kind), now) for each in findings]
        gone = [known[kind] for kind in known.keys() - {each.kind for each in findings}]
        for row in (row for row in gone if row.gone_at is None):
            row.gone_at = now
            add_history(session, attempt.run_id, attempt.number, now, f"no longer so: {row.kind}")
            changed.append(True)
        return attempt.run_id if any(changed) else None


def findings(store: Store, run_id: str, attempt: int | None = None) -> list[FindingView]:
    """What was found in a run's attempts (or in one), oldest first, also what is no longer so."""
    query = (
        select(FindingRow, Attempt.number)
        .join(Attempt, Attempt.fence == FindingRow.fence)
        .where(Attempt.run_id == run_id)
        .order_by(FindingRow.id)
    )
    if attempt is not None:
        query = query.where(Attempt.number == attempt)
    with store.read() as session:
        return [_view(row, number) for row, number in session.execute(query)]


def first_findings(session: Session, fences: Sequence[int]) -> dict[int, str]:
    """Attempt -> what is wrong with it now, in a line: a hang before anything else, then the oldest."""
    query = (
        select(FindingRow.fence, FindingRow.kind, FindingRow.evidence)
        .where(FindingRow.fence.in_(fences), FindingRow.gone_at.is_(None))
        .order_by(FindingRow.kind != "hung", FindingRow.id)
    )
    found: dict[int, str] = {}
    for fence, kind, evidence in session.execute(query):
        found.setdefault(fence, f"{kind}: {evidence}")
    return found


def _of_part(fence: int, node_rank: int) -> Select[FindingRow]:
    return select(FindingRow).filter_by(fence=fence, node_rank=node_rank)


def _keep(
    session: Session, attempt: Attempt, node_rank: int, finding: Finding, row: FindingRow | None, now: float
) -> bool:
    """True when there is something new to see."""
    said = finding.model_dump()
    if row is None:
        row = FindingRow(fence=attempt.fence, node_rank=node_rank, first_at=now, **said)
        session.add(row)
    elif row.gone_at is None:
        is_news = any(getattr(row, name) != value for name, value in said.items())
        _copy(row, said)
        return is_news
    else:
        row.first_at, row.gone_at = now, None
        _copy(row, said)
    add_history(session, attempt.run_id, attempt.number, now, f"{finding.kind}: {finding.evidence}")
    return True


def _copy(row: FindingRow, said: dict[str, str]) -> None:
    for name, value in said.items():
        setattr(row, name, value)


def _view(row: FindingRow, attempt: int) -> FindingView:
    return FindingView(
        attempt=attempt,
        node_rank=row.node_rank,
        kind=row.kind,
        evidence=row.evidence,
        meaning=row.meaning,
        mend=row.mend,
        first_at=row.first_at,
        gone_at=row.gone_at,
    )
