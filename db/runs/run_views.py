"""Runs as lists and pages show them: the rows of a few queries for all of them, and of each what its series say."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Text, and_, bindparam, cast, func, or_, select
from sqlalchemy.orm import Session, aliased

from db.attempts.liveness import pending_nodes
from db.findings.findings import first_findings
from db.metrics.series_names import PROBED_TAGS
from db.models import Attempt, ImportedRun, Run, RunTag, Series
from db.runs.run_summary import RunRow, SeriesFigures, run_view
from domain.messages import SCRIPT_KINDS, State
from domain.views import RunView, with_attention

# Built once, and without objects for the rows of runs and series: a window of a list reads a hundred of the one, and
# six hundred of the other.
_RUNS = (
    select(
        Attempt, Run.id, Run.name, Run.project, cast(Run.spec, Text), Run.created_at, Run.note, Run.archived_at,
        Run.pinned_at, Run.baseline_at, ImportedRun.format,
    )
    .join(Run, Run.id == Attempt.run_id)
    .outerjoin(ImportedRun, ImportedRun.run_id == Run.id)
    .where(Attempt.fence.in_(bindparam("fences", expanding=True)))
)  # fmt: skip
_SERIES = (
    select(Series.fence, *(getattr(Series, name) for name in SeriesFigures._fields))
    .where(
        Series.fence.in_(bindparam("fences", expanding=True)),
        or_(Series.source.in_(SCRIPT_KINDS), and_(Series.source == "probe", Series.tag.in_(PROBED_TAGS))),
        Series.node_rank == 0,
    )
    .order_by(Series.fence, Series.id)
)
_LATEST = aliased(Attempt)
_EARLIER = (
    select(Attempt.run_id, func.max(Attempt.fence))
    .join(_LATEST, (_LATEST.run_id == Attempt.run_id) & (Attempt.number < _LATEST.number))
    .where(_LATEST.fence.in_(bindparam("fences", expanding=True)))
    .where(
        select(Series.id).where(Series.fence == Attempt.fence, Series.source.in_(SCRIPT_KINDS)).exists(),
    )
    .group_by(Attempt.run_id)
)
_TAGS = (
    select(RunTag.run_id, RunTag.tag)
    .where(RunTag.run_id.in_(bindparam("run_ids", expanding=True)))
    .order_by(RunTag.tag)
)


def views(session: Session, fences: Sequence[int], now: float) -> list[RunView]:
    """The views of the runs with these latest attempts, in the same order."""
    if not fences:
        return []
    read = session.execute(_RUNS, {"fences": fences})
    rows: dict[int, tuple[Attempt, RunRow]] = {row[0].fence: (row[0], RunRow._make(row[1:])) for row in read}
    begun = [fence for fence, (attempt, _) in rows.items() if attempt.state != State.QUEUED]
    series, findings = _series(session, begun), first_findings(session, begun)
    silent = [fence for fence, (one, _) in rows.items() if one.resume_checkpoint_id and fence not in series]
    earlier = _earlier_series(session, silent)
    nodes = pending_nodes(session, begun, now)
    tags = _tags(session, [run.id for _, run in rows.values()])
    return [
        with_attention(
            run_view(
                run,
                attempt,
                series.get(fence) or earlier.get(run.id, []),
                nodes.get(fence, []),
                findings.get(fence),
                tags.get(run.id, []),
                has_logged=fence in series,
            ),
            now,
        )
        for fence, (attempt, run) in ((fence, rows[fence]) for fence in fences)
    ]


def _earlier_series(session: Session, fences: Sequence[int]) -> dict[str, list[SeriesFigures]]:
    """The series of the last attempt that logged before these, by run: where a resumed run stands until it steps."""
    if not fences:
        return {}
    read = session.execute(_EARLIER, {"fences": fences}).all()
    run_ids = {fence: run_id for run_id, fence in read}
    return {run_ids[fence]: series for fence, series in _series(session, [*run_ids]).items()}


def _tags(session: Session, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """The tags of each run that has some, in order, by its id."""
    tags: dict[str, list[str]] = {}
    for run_id, tag in session.execute(_TAGS, {"run_ids": run_ids}):
        tags.setdefault(run_id, []).append(tag)
    return tags


def _series(session: Session, fences: Sequence[int]) -> dict[int, list[SeriesFigures]]:
    """Node rank 0's series of each attempt, by fence, the oldest first: logged ones, those parsed from the output,
    and the probe's speeds of the whole attempt."""
    rows_by_fence: dict[int, list[SeriesFigures]] = {}
    for fence, *row in session.execute(_SERIES, {"fences": fences}) if fences else ():
        rows_by_fence.setdefault(fence, []).append(SeriesFigures._make(row))
    return rows_by_fence
