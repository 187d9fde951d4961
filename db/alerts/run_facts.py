"""Read what alert rules depend on: runs and how they stand, their curves, and how the disks of their nodes filled."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session, aliased

from db.attempts.deliveries import are_sent
from db.engine import Store
from db.health.incidents import in_quarantine, machine_of
from db.lookups import is_ours
from db.metrics import points
from db.metrics.curves import StepRange, thinned_points
from db.metrics.points import unpack
from db.metrics.series_names import main_loss, public_name
from db.models import Attempt, Chunk, FindingRow, ImportedRun, Node, Run, Series, Task
from domain.alerts.judgement import FRESH_S, GpuUse, OpenFinding, RunEvent, RunFacts, left_out
from domain.messages import LIVE_STATES, SCRIPT_KINDS, Point, State
from domain.views import Quarantine


def run_facts(store: Store, ended_since: float) -> list[RunFacts]:
    """The latest attempts of all runs that are queued or live, or ended at or after a time; not those imported."""
    later = aliased(Attempt)
    has_later = select(later.fence).where(later.run_id == Attempt.run_id, later.number > Attempt.number).exists()
    query = (
        select(Run.name, Run.project, Run.by, Attempt)
        .join(Run, Run.id == Attempt.run_id)
        .where(_is_current(ended_since), ~has_later, Attempt.run_id.not_in(select(ImportedRun.run_id)))
        .order_by(Attempt.fence)
    )
    with store.read() as session:
        rows = session.execute(query).all()
        open_findings = _findings(session, [attempt.fence for *_, attempt in rows if attempt.state in LIVE_STATES])
        return [_facts(name, project, by, attempt, open_findings[attempt.fence]) for name, project, by, attempt in rows]


def _is_current(ended_since: float) -> ColumnElement[bool]:
    # Both have an index; points of an ended attempt may still arrive.
    return or_(Attempt.state.in_([State.QUEUED, *LIVE_STATES]), Attempt.ended_at >= ended_since, ~are_sent())


def _findings(session: Session, fences: Sequence[int]) -> dict[int, list[OpenFinding]]:
    query = select(FindingRow).where(FindingRow.fence.in_(fences), FindingRow.gone_at.is_(None))
    by_fence: dict[int, list[OpenFinding]] = defaultdict(list)
    for row in session.scalars(query.order_by(FindingRow.id)):
        by_fence[row.fence].append(OpenFinding(row.kind, row.evidence, row.first_at))
    return by_fence


def _facts(name: str, project: str, by: str | None, attempt: Attempt, findings: Sequence[OpenFinding]) -> RunFacts:
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
        by=by,
    )


# Read the curves that alert rules are about, and how the disks of a run's nodes filled.

BEFORE_NAN = 1000
"""Points read before the first that is not a number."""


@dataclass(frozen=True)
class JudgedCurve:
    """A series of one attempt, as far as it was read."""

    name: str
    count: int
    """Points of the entire series."""
    finite_count: int
    finite_sum: float
    """Of all finite values of the series."""
    points: list[Point]


def curve(
    store: Store, fence: int, name: str | None, *, last: int | None, most: int | None, known_count: int
) -> JudgedCurve | None:
    """A series of an attempt, by default its training loss; None where there is none or it has `known_count` points.

    `last`: about so many points of its end; `most`: at most so many in total, the extremes of buckets."""
    with store.read() as session:
        row = _row(session, fence, name)
        if row is None or row.count == known_count or not row.finite_count:
            return None
        if most is None:
            read = points.tail(session, row.id, row.count if last is None else last)
        else:
            read = thinned_points(session, [row], most, StepRange())[row.id]
        return JudgedCurve(public_name(row), row.count, row.finite_count, row.finite_sum, read)


def last_good(store: Store, fence: int) -> Point | None:
    """The last point of a loss that is a number, before the first one that is not; None where there is none.

    Of several losses, the one that was not a number first."""
    query = select(Series).where(
        Series.fence == fence, Series.node_rank == 0, Series.source.in_(SCRIPT_KINDS),
        Series.not_finite_since.is_not(None), func.lower(Series.tag).contains("loss"),
    )  # fmt: skip
    with store.read() as session:
        row = session.scalars(query.order_by(Series.not_finite_since, Series.id)).first()
        if row is None or row.not_finite_since is None:
            return None
        since = row.not_finite_since - _spacing(row) * BEFORE_NAN
        read = points.read(session, row.id, since, row.not_finite_since)
        return next((point for point in reversed(read) if math.isfinite(point[1])), None)


def _row(session: Session, fence: int, name: str | None) -> Series | None:
    query = select(Series).where(Series.fence == fence, Series.node_rank == 0, Series.source.in_(SCRIPT_KINDS))
    rows = session.scalars(query.order_by(Series.id)).all()
    if name is not None:
        return next((row for row in rows if public_name(row) == name), None)
    return _loss([row for row in rows if row.source == "events"]) or _loss(rows)


def _loss(rows: Sequence[Series]) -> Series | None:
    by_tag = {row.tag: row for row in rows}
    return by_tag.get(main_loss(by_tag) or "")


def _spacing(row: Series) -> int:
    """Steps between two of its points, rounded up."""
    return -((row.first_step - row.last_step) // max(1, row.count - 1))


DISK_TAG = "disk_used_bytes"
DISK_CHUNKS = 3
"""The last ones: more than half an hour, at a sample every 5 s."""


@dataclass(frozen=True)
class NodeDisk:
    """The disk of a node's data directory."""

    node: str
    node_rank: int
    free_bytes: int
    samples: list[tuple[float, float]]
    """Wall time and bytes used, oldest first."""


def disks(store: Store, fence: int, now: float) -> list[NodeDisk]:
    """The disks of an attempt's nodes, without those that are silent or whose free space is not known."""
    query = (
        select(Series.id, Task.node_rank, Node.name, Node.load)
        .join(Task, (Task.fence == Series.fence) & (Task.node_rank == Series.node_rank))
        .join(Node, Node.id == Task.node_id)
        .where(Series.fence == fence, Series.source == "hardware", Series.tag == DISK_TAG)
        .where(Node.last_seen >= now - FRESH_S)
        .order_by(Task.node_rank)
    )
    with store.read() as session:
        node_disks = []
        for series_id, rank, name, load in session.execute(query).all():
            if not (load or {}).get("disk_total_bytes"):
                continue
            samples = _last_samples(session, series_id, DISK_CHUNKS)
            node_disks.append(NodeDisk(name, rank, int(load["disk_free_bytes"]), samples))
        return node_disks


def _last_samples(session: Session, series_id: int, chunks: int) -> list[tuple[float, float]]:
    """(wall time, value) of the last samples of a series, oldest first."""
    last = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == 0)
    blobs = list(session.scalars(last.order_by(Chunk.seq.desc()).limit(chunks)))
    return [(wall, value) for _, value, wall in unpack(*reversed(blobs))]


SAMPLED_EVERY_S = 5.0
_GPU_TAG = re.compile(r"gpu(\d+)/(utilisation_percent|processes)")


def gpus(store: Store, fence: int, limit_s: float) -> list[GpuUse]:
    """How the GPUs of an attempt were used in the last `limit_s` seconds, as far as they were sampled."""
    query = select(Series.id, Series.tag, Series.node_rank, Series.last_value, Node.name)
    query = query.join(Task, (Task.fence == Series.fence) & (Task.node_rank == Series.node_rank))
    query = query.join(Node, Node.id == Task.node_id)
    query = query.where(Series.fence == fence, Series.source == "hardware", Series.tag.startswith("gpu"))
    chunks = math.ceil(limit_s / SAMPLED_EVERY_S / points.CHUNK_POINTS) + 2
    with store.read() as session:
        tagged_rows = [(row, match) for row in session.execute(query) if (match := _GPU_TAG.fullmatch(row.tag))]
        processes = {(row.node_rank, match[1]): row.last_value for row, match in tagged_rows if match[2] == "processes"}
        return [
            GpuUse(
                row.name, row.node_rank, int(match[1]), _last_samples(session, row.id, chunks),
                processes.get((row.node_rank, match[1])),
            )
            for row, match in tagged_rows
            if match[2] == "utilisation_percent"
        ]  # fmt: skip


def quarantined(store: Store) -> list[RunEvent]:
    """The nodes and devices in quarantine, an event each."""
    with store.read() as session:
        by_machine = in_quarantine(session)
        named = session.scalars(select(Node).where(Node.removed_at.is_(None), is_ours())) if by_machine else ()
        names = {machine_of(node): node.name for node in named}
        return [
            left_out(machine, names[machine], device, Quarantine(row.since, row.why))
            for machine, rows in by_machine.items()
            for device, row in rows.items()
            if machine in names
        ]
