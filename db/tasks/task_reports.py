"""Store workers' reports about attempts; repeated, late or out-of-order reports count once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.orm import Session

from db.attempts import deliveries
from db.attempts.attempt_state import combine, is_watched
from db.checkpoints import checkpoint_reports
from db.engine import Store
from db.exceptions import NotOwner, Superseded
from db.lookups import AttemptKey, add_history, attempt_scope, attempts_of_node, task_of_node
from db.metrics.point_reports import SeriesOf, store_batches
from db.models import Attempt, File, Node, Task
from db.preflight import start_gate
from db.watched import processes
from domain.messages import TERMINAL_STATES, EnvironmentReport, Point, PointBatch, State, TaskReport
from domain.points import PackedBatch

LIFE: tuple[str, ...] = (State.STARTING, State.RUNNING, State.STOPPING)
"""The states of a task before its end, in their order."""
NOT_COLUMNS = {
    *("state", "master_addr", "master_port", "fetching", "held", "environment", "doing", "delivery"),
    *("seen", "ended_at"),
}
"""Fields of a report that are not columns of its task."""
_FILE = select(File).where(
    File.fence == bindparam("fence"), File.node_rank == bindparam("node_rank"),
    File.path == bindparam("path"), File.generation == bindparam("generation"),
)  # fmt: skip
# Statements of tables, not of classes, where points and bytes arrive: their rows cost half as much.
_FILES = cast(Table, File.__table__)
_STORED = select(
    _FILES.c.fence, _FILES.c.node_rank, _FILES.c.path, _FILES.c.generation,
    _FILES.c.id, _FILES.c.size_bytes, _FILES.c.points_offset,
).where(
    _FILES.c.fence.in_(bindparam("fences", expanding=True)),
    _FILES.c.node_rank.in_(bindparam("node_ranks", expanding=True)),
    _FILES.c.path.in_(bindparam("paths", expanding=True)),
)  # fmt: skip
_CHANGE_FILE = update(_FILES).where(_FILES.c.id == bindparam("of"))
_GROW_FILE = _CHANGE_FILE.where(_FILES.c.size_bytes == bindparam("start"))
_SIZES = select(_FILES.c.id, _FILES.c.size_bytes).where(_FILES.c.id.in_(bindparam("ids", expanding=True)))
# Built once: building a statement takes longer than running it, and points arrive many times a second.


class StreamKey(NamedTuple):
    """One generation of one file of a task."""

    fence: int
    node_rank: int
    path: str
    generation: int

    @property
    def task(self) -> tuple[int, int]:
        """(fence, node rank)"""
        return self.fence, self.node_rank


class FileState(NamedTuple):
    """How far the server has a mirrored file."""

    id: int
    size_bytes: int
    points_offset: int


class FileGrowth(NamedTuple):
    """Bytes of a mirrored file that have become durable."""

    file_id: int
    start: int
    end: int


@dataclass(frozen=True)
class Arrival:
    """The stored offset after points were offered, and the new points for live pages."""

    offset: int
    stored: bool
    run_id: str
    attempt: int
    series: Mapping[str, Iterable[Point]] = field(default_factory=dict)
    begun: Collection[str] = ()
    """The tags of which a later life of the script begins with them."""


def task_reported(
    store: Store,
    node_id: str,
    fence: int,
    node_rank: int,
    report: TaskReport,
    now: float,
    *,
    measure: bool = False,
) -> State:
    """Store a node's report about its task; return the attempt's state. Raises NotOwner, Superseded.

    `measure`: measure the bandwidth of new pairs of nodes before the start."""
    with store.write(attempt_scope(fence)) as session:
        task, attempt = task_of_node(session, node_id, fence, node_rank)
        processes.reported(session, attempt, node_rank, report, now)
        if task.lost_at is not None and is_watched(session, attempt):
            _took_up_again(session, task, attempt, report, now)
            return State(attempt.state)
        if task.lost_at is not None and report.state in TERMINAL_STATES:
            _end_of_lost_task(session, task, attempt, report, now)
            return State(attempt.state)
        if task.delivery is not None and report.state in TERMINAL_STATES:
            deliveries.reported(session, attempt, task, report.delivery, now)
            return State(attempt.state)
        if attempt.state in TERMINAL_STATES:
            if task.state != report.state or report.delivery is not None:
                raise Superseded(f"Attempt {attempt.run_id}/{attempt.number} has ended ({attempt.state}).")
            return State(attempt.state)
        if task.state not in TERMINAL_STATES:
            might_start = start_gate.may_start(session, fence)
            _copy_report(task, report, now)
            deliveries.reported(session, attempt, task, report.delivery, now)
            _note_held(session, attempt, task, report, now)
            _store_endpoint(session, attempt, task, report, now)
            if not might_start:
                session.flush()
                start_gate.go_on(session, attempt, now, measure=measure)
            _note_preparation(session, attempt, task, report, now)
        combine(session, attempt, now)
        return State(attempt.state)


def _note_preparation(session: Session, attempt: Attempt, task: Task, report: TaskReport, now: float) -> None:
    """Store what the node still does before its ranks can start."""
    if report.fetching is not None:
        checkpoint_reports.record_fetch_progress(session, attempt, task, report.fetching, now)
    if report.doing is not None:
        attempt.waiting_for = f"{session.get_one(Node, task.node_id).name} {report.doing}"
    if report.environment is not None:
        _tell_of_environment(session, attempt, task, report.environment, now)


def streams_arrived(
    store: Store, node_id: str, offers: Sequence[tuple[StreamKey, PointBatch | PackedBatch | None]]
) -> list[Arrival | FileState | NotOwner | Superseded]:
    """Store the points of byte ranges of files together with the new offsets, exactly once, in one transaction.

    Of a range that does not begin at the stored offset nothing is stored; continue at the returned offset. Without
    points the file is registered where it is new, to take bytes. What one may not write holds up no other."""
    with store.write(*{attempt_scope(key.fence) for key, _ in offers}) as session:
        attempts = attempts_of_node(session, node_id, {key.task for key, _ in offers})
        own = dict.fromkeys(key for key, _ in offers if isinstance(attempts[key.task], AttemptKey))
        files = _file_states(session, own.keys())  # in order, which tells later files from earlier ones
        outcomes: list[Arrival | FileState | NotOwner | Superseded] = []
        arrived, places = list[SeriesOf](), list[int]()
        moved = dict[int, int]()
        for key, batch in offers:
            attempt = attempts[key.task]
            if not isinstance(attempt, AttemptKey):
                outcomes.append(attempt)
            elif batch is None:
                outcomes.append(files[key])
            elif batch.start != files[key].points_offset:
                outcomes.append(Arrival(files[key].points_offset, False, attempt.run_id, attempt.number))
            else:
                series: Mapping[str, Iterable[Point]] = batch.series
                outcomes.append(Arrival(batch.end, True, attempt.run_id, attempt.number, series))
                files[key] = files[key]._replace(points_offset=batch.end)
                moved[files[key].id] = batch.end
                arrived.append(SeriesOf(attempt, key.node_rank, batch.source, series, files[key].id))
                places.append(len(outcomes) - 1)
        if arrived:
            session.execute(_CHANGE_FILE, [{"of": file, "points_offset": offset} for file, offset in moved.items()])
            for place, begun in zip(places, store_batches(session, arrived), strict=True):
                outcomes[place] = replace(cast(Arrival, outcomes[place]), begun=begun)
        return outcomes


def file_offsets(store: Store, node_id: str, fence: int, node_rank: int, path: str, generation: int) -> tuple[int, int]:
    """(bytes mirrored, bytes whose points are stored) of a file; (0, 0) for a new one. Raises NotOwner, Superseded."""
    with store.read() as session:
        task_of_node(session, node_id, fence, node_rank)
        file = _stored_file(session, fence, node_rank, path, generation)
        return (file.size_bytes, file.points_offset) if file else (0, 0)


def files_grew(store: Store, growths: Sequence[FileGrowth]) -> list[int | None]:
    """Record that bytes up to each `end` are durable if those up to `start` were before; returns how many are.

    None means a file whose run was erased."""
    ids = {growth.file_id for growth in growths}
    with store.write(*{f"file {file_id}" for file_id in ids}) as session:
        rows = [
            {"of": growth.file_id, "start": growth.start, "size_bytes": growth.end, "compressed_bytes": None}
            for growth in growths
        ]
        session.execute(_GROW_FILE, rows)
        sizes = {file_id: int(size) for file_id, size in session.execute(_SIZES, {"ids": [*ids]})}
    return [sizes.get(growth.file_id) for growth in growths]


def file_grew(store: Store, file_id: int, start: int, end: int) -> int | None:
    """Record that bytes up to `end` are durable if `start` were before; return the number of durable bytes.

    None: its run was erased."""
    return files_grew(store, [FileGrowth(file_id, start, end)])[0]


def contact_changed(store: Store, run_id: str, attempt: int, now: float, text: str) -> None:
    """Add a history line about a node that fell silent or has contact again."""
    with store.write(f"run {run_id}") as session:
        add_history(session, run_id, attempt, now, text)


def _end_of_lost_task(session: Session, task: Task, attempt: Attempt, report: TaskReport, now: float) -> None:
    """Record that a lost node is back and its task has ended; the attempt's end is already decided."""
    task.lost_at, task.exit_code, task.reported_at = None, report.exit_code, now
    deliveries.reported(session, attempt, task, report.delivery, now)
    node = session.get_one(Node, task.node_id).name
    text = f"{node} is back: no process of this attempt is left there, its devices are free again"
    add_history(session, attempt.run_id, attempt.number, now, text)


def _took_up_again(session: Session, task: Task, attempt: Attempt, report: TaskReport, now: float) -> None:
    """Take what a lost guest reports for what it is: its command was never ended from here.

    So the attempt is what it would be, had the guest never been away."""
    node = session.get_one(Node, task.node_id).name
    has_ended = report.state in TERMINAL_STATES
    text = f"its command had ended: {report.state}" if has_ended else "its command still runs"
    add_history(session, attempt.run_id, attempt.number, now, f"{node} is back: {text}")
    for row in (task, attempt):
        row.reason = row.message = row.next_step = row.error = None
    task.lost_at = attempt.ended_at = attempt.end_requested_at = attempt.end_reason = None
    if attempt.stop_requested_at is None:
        attempt.end_message = None
    _copy_report(task, report, now)
    deliveries.reported(session, attempt, task, report.delivery, now)
    combine(session, attempt, now)


def _copy_report(task: Task, report: TaskReport, now: float) -> None:
    task.state, task.reported_at = _later(task.state, report.state), now
    columns = report.model_dump(exclude_none=True, mode="json", exclude=NOT_COLUMNS)
    if task.interpreter and "environment" in task.interpreter and "interpreter" in columns:
        columns["interpreter"]["environment"] = task.interpreter["environment"]
    for name, value in columns.items():
        setattr(task, name, value)


def _later(stored: str, reported: str) -> str:
    """Return the later of two states: a worker that tells a restored store everything anew begins with the first."""
    is_late = stored in LIFE and reported in LIFE and LIFE.index(reported) < LIFE.index(stored)
    return stored if is_late else reported


def _tell_of_environment(
    session: Session, attempt: Attempt, task: Task, environment: EnvironmentReport, now: float
) -> None:
    """Store what a node is doing for its environment and say it; once it is ready, in the history."""
    task.interpreter = {**(task.interpreter or {}), "environment": environment.model_dump(mode="json")}
    node = session.get_one(Node, task.node_id).name
    doing = f"{node} builds its environment"
    if environment.state == "building":
        attempt.waiting_for = f"{doing}: {environment.note}"
        return
    if (attempt.waiting_for or "").startswith(doing):
        attempt.waiting_for = None
    if environment.state == "ready" and environment.hash:
        text = f"{node} has the environment {environment.hash} of {environment.note}"
        add_history(session, attempt.run_id, attempt.number, now, text)


def _note_held(session: Session, attempt: Attempt, task: Task, report: TaskReport, now: float) -> None:
    """Keep devices from other runs that something still holds; the node's next load says when they are free."""
    if not report.held:
        return
    node = session.get_one(Node, task.node_id)
    node.foreign_devices = sorted({*(node.foreign_devices or ()), *(held.device for held in report.held)})
    for held in report.held:
        text = f"GPU {held.device} of {node.name} is not free after the attempt: {held.holder}"
        add_history(session, attempt.run_id, attempt.number, now, text)


def _store_endpoint(session: Session, attempt: Attempt, task: Task, report: TaskReport, now: float) -> None:
    if task.node_rank != 0 or not (report.master_addr and report.master_port):
        return
    if attempt.master_port not in (None, report.master_port):
        text = f"port {attempt.master_port} was taken by another program: rendezvous at port {report.master_port}"
        add_history(session, attempt.run_id, attempt.number, now, text)
    attempt.master_addr, attempt.master_port = report.master_addr, report.master_port


def file_of(session: Session, fence: int, node_rank: int, path: str, generation: int) -> File:
    """The row of a mirrored file; a new one if it has none yet."""
    file = _stored_file(session, fence, node_rank, path, generation)
    if file is None:
        file = File(fence=fence, node_rank=node_rank, path=path, generation=generation)
        file.size_bytes = file.points_offset = 0
        session.add(file)
    return file


def _file_states(session: Session, keys: Collection[StreamKey]) -> dict[StreamKey, FileState]:
    """The states of mirrored files, which get rows where they have none."""
    states = _stored_files(session, keys)
    if missing := [key for key in keys if key not in states]:
        for key in missing:
            session.add(File(**key._asdict(), size_bytes=0, points_offset=0))
        session.flush()
        states |= _stored_files(session, missing)
    return states


def _stored_files(session: Session, keys: Collection[StreamKey]) -> dict[StreamKey, FileState]:
    if not keys:
        return {}
    fences, ranks, paths = ({key[at] for key in keys} for at in range(3))
    rows = session.execute(_STORED, {"fences": [*fences], "node_ranks": [*ranks], "paths": [*paths]})
    return {key: FileState(*row[4:]) for row in rows if (key := StreamKey(*row[:4])) in keys}


def _stored_file(session: Session, fence: int, node_rank: int, path: str, generation: int) -> File | None:
    key = {"fence": fence, "node_rank": node_rank, "path": path, "generation": generation}
    return session.scalars(_FILE, key).first()
