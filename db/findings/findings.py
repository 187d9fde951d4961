"""Findings about live attempts, as reported by their nodes; each gets one history line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from sqlalchemy import Select, and_, bindparam, exists, or_, select
from sqlalchemy.orm import Session, aliased

from db.attempts.deliveries import are_sent
from db.engine import Store
from db.lookups import add_history, attempt_scope, task_of_node
from db.models import Attempt, Checkpoint, FindingRow, Node, Task
from domain.checkpoint_use.resumed_loss import KIND as LOSS_JUMPS
from domain.messages import TERMINAL_STATES, Finding
from domain.performance.slow_ranks import KIND as SLOW_RANK
from domain.series import divergence
from domain.text.formats import size
from domain.views import FindingView
from domain.watching.worlds import KIND as WORLDS_DIFFER

JUDGED_BY_SERVER = frozenset({SLOW_RANK, LOSS_JUMPS, WORLDS_DIFFER})
"""Kinds that take the reports of all nodes, or of earlier attempts: no single node's list resolves them."""
_OPEN = (
    select(FindingRow.fence, FindingRow.kind, FindingRow.evidence)
    .where(FindingRow.fence.in_(bindparam("fences", expanding=True)), FindingRow.gone_at.is_(None))
    .order_by(FindingRow.kind != "hung", FindingRow.id)
)


def findings_reported(
    store: Store, node_id: str, fence: int, node_rank: int, findings: list[Finding], now: float
) -> str | None:
    """Store a node's complete list of findings; return the run's id when it differs from the stored one.

    Raises NotOwner, Superseded."""
    with store.write(attempt_scope(fence)) as session:
        _, attempt = task_of_node(session, node_id, fence, node_rank)
        stored = {row.kind: row for row in session.scalars(_of_task(fence, node_rank))}
        changed = [
            _store_finding(session, attempt, node_rank, finding, stored.get(finding.kind), now) for finding in findings
        ]
        resolved = stored.keys() - {finding.kind for finding in findings} - JUDGED_BY_SERVER
        changed += [_resolve(session, attempt, stored[kind], now) for kind in resolved]
        return attempt.run_id if any(changed) else None


def finding_judged(store: Store, fence: int, kind: str, finding: Finding | None, now: float) -> str | None:
    """Store what the server itself judges from all nodes' reports; return the run's id when it is news.

    `finding` is None where there is nothing of this kind."""
    with store.write(attempt_scope(fence)) as session:
        attempt = session.get(Attempt, fence)
        if attempt is None or attempt.state in TERMINAL_STATES:
            return None
        return attempt.run_id if judge(session, attempt, kind, finding, now) else None


def judge(session: Session, attempt: Attempt, kind: str, finding: Finding | None, now: float) -> bool:
    """Store what was judged of an attempt; return whether that is news."""
    row = session.scalars(_of_task(attempt.fence, 0).filter_by(kind=kind)).first()
    if finding is not None:
        return _store_finding(session, attempt, 0, finding, row, now)
    return row is not None and _resolve(session, attempt, row, now)


def findings(store: Store, run_id: str, attempt: int | None = None) -> list[FindingView]:
    """The findings of a run's attempts (or of one), oldest first, including resolved ones."""
    query = (
        select(FindingRow, Attempt.number)
        .join(Attempt, Attempt.fence == FindingRow.fence)
        .where(Attempt.run_id == run_id)
        .order_by(FindingRow.id)
    )
    if attempt is not None:
        query = query.where(Attempt.number == attempt)
    with store.read() as session:
        reported = [_naming_checkpoint(session, run_id, _view(row, number)) for row, number in session.execute(query)]
        return reported + checkpoints_not_whole(session, run_id, attempt)


def _naming_checkpoint(session: Session, run_id: str, finding: FindingView) -> FindingView:
    """Return a finding that a loss diverges with the last complete checkpoint from before that."""
    since = divergence.since(finding.evidence) if finding.kind == divergence.KIND else None
    if since is None:
        return finding
    query = select(Checkpoint.path, Checkpoint.step).join(Attempt, Attempt.fence == Checkpoint.fence)
    query = query.where(Attempt.run_id == run_id, Attempt.number <= finding.attempt, Checkpoint.complete)
    query = query.where(Checkpoint.merged_from.is_(None), Checkpoint.deleted_at.is_(None))
    last = query.where(Checkpoint.step < since).order_by(Checkpoint.step.desc(), Checkpoint.id.desc())
    if (good := session.execute(last.limit(1)).first()) is None:
        return finding
    return replace(finding, fix=f"{finding.fix} The last one from before is {good.path}, of step {good.step}.")


def first_findings(session: Session, fences: Sequence[int]) -> dict[int, str]:
    """The most important open finding of each attempt, by fence, in a line: a hang, else the oldest."""
    first_by_fence: dict[int, str] = {}
    for fence, kind, evidence in session.connection().execute(_OPEN, {"fences": fences}) if fences else ():
        first_by_fence.setdefault(fence, f"{kind}: {evidence}")
    return first_not_whole(session, fences) | first_by_fence


def _of_task(fence: int, node_rank: int) -> Select[FindingRow]:
    return select(FindingRow).filter_by(fence=fence, node_rank=node_rank)


def _store_finding(
    session: Session, attempt: Attempt, node_rank: int, finding: Finding, row: FindingRow | None, now: float
) -> bool:
    """Store one finding; True when it is new or has changed."""
    values = finding.model_dump()
    if row is None:
        row = FindingRow(fence=attempt.fence, node_rank=node_rank, first_at=now, **values)
        session.add(row)
    elif row.gone_at is None:
        is_news = any(getattr(row, name) != value for name, value in values.items())
        _set_columns(row, values)
        return is_news
    else:
        row.first_at, row.gone_at = now, None
        _set_columns(row, values)
    add_history(session, attempt.run_id, attempt.number, now, f"{finding.kind}: {finding.evidence}")
    return True


def _resolve(session: Session, attempt: Attempt, row: FindingRow, now: float) -> bool:
    """Note that a finding no longer applies; return False if it was noted before."""
    if row.gone_at is not None:
        return False
    row.gone_at = now
    add_history(session, attempt.run_id, attempt.number, now, f"no longer applies: {row.kind}")
    return True


def _set_columns(row: FindingRow, values: dict[str, str]) -> None:
    for name, value in values.items():
        setattr(row, name, value)


def _view(row: FindingRow, attempt: int) -> FindingView:
    return FindingView(
        attempt=attempt,
        node_rank=row.node_rank,
        kind=row.kind,
        evidence=row.evidence,
        meaning=row.meaning,
        fix=row.fix,
        first_at=row.first_at,
        gone_at=row.gone_at,
    )


# Says which checkpoints of ended attempts arrived incomplete: a run may have succeeded anyway.

KIND = "checkpoint never arrived"
MOST_NAMED = 10
_NEWER = aliased(Checkpoint)
_HAS_WHOLE = exists().where(
    _NEWER.fence == Checkpoint.fence, _NEWER.node_rank == Checkpoint.node_rank,
    _NEWER.path == Checkpoint.path, or_(_NEWER.complete, _NEWER.deleted_at.is_not(None)),
)  # fmt: skip
_NEVER_ARRIVED = (
    Attempt.state.in_(TERMINAL_STATES), are_sent(), Checkpoint.complete.is_(False), Checkpoint.deleted_at.is_(None),
    ~_HAS_WHOLE, Checkpoint.merged_from.is_(None),
)  # fmt: skip
_OF_FENCES = (
    select(Checkpoint)
    .join(Attempt, Attempt.fence == Checkpoint.fence)
    .where(Checkpoint.fence.in_(bindparam("fences", expanding=True)), *_NEVER_ARRIVED)
    .order_by(Checkpoint.id)
)


def first_not_whole(session: Session, fences: Sequence[int]) -> dict[int, str]:
    """Return a line for each of these attempts that ended with an incomplete checkpoint, by fence."""
    lines = dict[int, str]()
    for checkpoint in session.scalars(_OF_FENCES, {"fences": fences}) if fences else ():
        lines.setdefault(checkpoint.fence, f"{KIND}: {_sentence(checkpoint)}")
    return lines


def checkpoints_not_whole(session: Session, run_id: str, attempt: int | None = None) -> list[FindingView]:
    """Return a finding for each ended attempt and node with a checkpoint that is incomplete on the server."""
    of_task = and_(Task.fence == Checkpoint.fence, Task.node_rank == Checkpoint.node_rank)
    query = (
        select(Checkpoint, Attempt, Node.name)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .join(Task, of_task)
        .outerjoin(Node, Node.id == Task.node_id)
        .where(Attempt.run_id == run_id, *_NEVER_ARRIVED)
        .order_by(Attempt.number, Checkpoint.node_rank, Checkpoint.id)
    )
    if attempt is not None:
        query = query.where(Attempt.number == attempt)
    rows = [(checkpoint, of, node) for checkpoint, of, node in session.execute(query)]
    by_task = groupby(rows, key=lambda row: (row[1].number, row[0].node_rank, row[2]))
    return [
        _partial_view(number, node_rank, node or "that is no longer registered", [row[0] for row in task], run_id)
        for (number, node_rank, node), task in by_task
    ]


def _partial_view(attempt: int, node_rank: int, node: str, partial: list[Checkpoint], run_id: str) -> FindingView:
    sentences = [_sentence(checkpoint) for checkpoint in partial[:MOST_NAMED]]
    if more := len(partial) - len(sentences):
        sentences.append(f"And {more} more.")
    return FindingView(
        attempt=attempt,
        node_rank=node_rank,
        kind=KIND,
        evidence=" ".join(sentences),
        meaning="The attempt ended before the server had the whole file: it can be neither downloaded nor resumed "
        "from.",
        fix=f"It may still be on node {node}, in the worker's data folder below "
        f"runs/{run_id}/attempts/{attempt}/node{node_rank}/. Send it again on the Checkpoints tab; "
        "else resume from an earlier checkpoint.",
        first_at=max(checkpoint.created_at for checkpoint in partial),
        gone_at=None,
    )


def _sentence(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.path}: {size(checkpoint.received_bytes)} of {size(checkpoint.size_bytes)} arrived."
