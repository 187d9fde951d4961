"""A run as one document: all its rows, read from the store; and rows made of documents again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Integer, String, Table, select
from sqlalchemy.orm import Session

from db.attempts import deliveries
from db.engine import Store
from db.exceptions import NoSuchRun, WrongState
from db.lookups import latest_attempt
from db.metrics.points import series_of
from db.models import (
    Attempt,
    Checkpoint,
    File,
    FindingRow,
    HistoryEntry,
    ImportedRun,
    Node,
    ProfiledRank,
    Run,
    RunTag,
    Series,
    Snapshot,
    Task,
    WatchedRun,
)
from db.models.base import Base, ExactFloat
from domain.collectives import NodeCollectives
from domain.imported_runs import ImportFormat
from domain.masking.masking import masked_args, masked_changes, masked_env, masked_spec
from domain.messages import TERMINAL_STATES, Device, NodeCheck, PhaseEnd, RankError, Stacks
from domain.profiles.records import Frame, Overview
from domain.recovery import Rollback
from domain.requests.bounds import Facts
from domain.spec import RunSpec

Row = dict[str, Any]


class AttemptDocument(BaseModel):
    """An attempt with its rows; `files`, `series` and `checkpoints` have their ids of the store they come from."""

    attempt: Row
    tasks: list[Row]
    files: list[Row]
    series: list[Row]
    checkpoints: list[Row]
    findings: list[Row]
    profiled_ranks: list[Row]


class RunDocument(BaseModel):
    """A run with its attempts, the oldest first."""

    run: Row
    tags: list[str]
    imported_from: ImportFormat | None = None
    """The importer that added the run to the store it comes from; None: it trained there."""
    watched: Row | None = None
    """What somebody else started; None: it was launched."""
    snapshot: Row | None
    nodes: list[Row]
    attempts: list[AttemptDocument]
    history: list[Row]


def run_document(store: Store, run_id: str, with_checkpoints: bool = True) -> RunDocument:
    """Read an ended run, its secrets masked. Raises NoSuchRun, WrongState."""
    with store.read() as session:
        run = session.get(Run, run_id)
        if run is None:
            raise NoSuchRun(f"There is no run {run_id!r}.")
        if (state := latest_attempt(session, run_id).state) not in TERMINAL_STATES:
            raise WrongState(
                f"Run {run_id} is {state}; an archive holds runs that have ended. Wait for its end, or stop it."
            )
        if deliveries.are_open(session, run_id):
            raise WrongState(
                f"Run {run_id} has ended, but its nodes are still sending the rest. Wait until all of it has "
                f"arrived, or end that: rankzero stop {run_id}."
            )
        attempts = session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number))
        documents = [_attempt(session, attempt, with_checkpoints) for attempt in attempts]
        spec = RunSpec.model_validate(run.spec)
        snapshot = session.get(Snapshot, spec.snapshot) if spec.snapshot else None
        return RunDocument(
            run=document_of(run) | {"spec": masked_spec(spec).model_dump(mode="json")},
            tags=list(session.scalars(select(RunTag.tag).where(RunTag.run_id == run_id).order_by(RunTag.tag))),
            imported_from=None if (mark := session.get(ImportedRun, run_id)) is None else mark.format,
            watched=None if (seen := session.get(WatchedRun, run_id)) is None else document_of(seen),
            snapshot=None if snapshot is None else document_of(snapshot),
            nodes=_nodes(session, documents),
            attempts=documents,
            history=_rows(session, select(HistoryEntry).filter_by(run_id=run_id).order_by(HistoryEntry.id)),
        )


def _attempt(session: Session, attempt: Attempt, with_checkpoints: bool) -> AttemptDocument:
    of_attempt = {"fence": attempt.fence}
    checkpoints = select(Checkpoint).filter_by(**of_attempt, complete=True, deleted_at=None).order_by(Checkpoint.id)
    tasks = _rows(session, select(Task).filter_by(**of_attempt).order_by(Task.node_rank))
    ranks = select(ProfiledRank).filter_by(**of_attempt).order_by(ProfiledRank.requested_at, ProfiledRank.rank)
    return AttemptDocument(
        attempt=_masked_attempt(document_of(attempt)),
        tasks=[_masked(task) for task in tasks],
        files=_rows(session, select(File).filter_by(**of_attempt).order_by(File.id)),
        series=_rows(session, select(Series).where(series_of(attempt.fence)).order_by(Series.id)),
        checkpoints=_rows(session, checkpoints) if with_checkpoints else [],
        findings=_rows(session, select(FindingRow).filter_by(**of_attempt).order_by(FindingRow.id)),
        profiled_ranks=_rows(session, ranks),
    )


def _nodes(session: Session, attempts: Iterable[AttemptDocument]) -> list[Row]:
    ids = {task["node_id"] for attempt in attempts for task in attempt.tasks}
    return _rows(session, select(Node).where(Node.id.in_(ids)).order_by(Node.id))


def _masked_attempt(attempt: Row) -> Row:
    changes, rollback = attempt["changes"], attempt["rollback"]
    masked = rollback and rollback | {"changes": masked_changes(rollback["changes"])}
    return attempt | {"changes": changes and masked_changes(changes), "rollback": masked}


def _masked(task: Row) -> Row:
    argv, env = task["argv"], task["env"]
    return task | {"argv": argv and masked_args(argv), "env": env and masked_env(env)}


def _rows(session: Session, query: Any) -> list[Row]:
    rows: Iterable[Base] = session.scalars(query)
    return [document_of(row) for row in rows]


# Rows of the store as documents, and back: values from elsewhere are checked against their columns.

RowT = TypeVar("RowT", bound=Base)
OWN_TO_A_STORE: Mapping[type[Base], frozenset[str]] = {
    Run: frozenset({"baseline_at"}),
    Attempt: frozenset({"fence", "run_id", "uid", "only_project", "stacks_requested_at", "resize_requested_at"}),
    Task: frozenset({"fence", "lost_at"}),
    Node: frozenset(
        {"instance_id", "token_hash", "drain_requested_at", "unknown_ends", "unknown_attempts", "protocol",
         "load", "foreign_devices", "removed_at"}
    ),
    File: frozenset({"fence", "compressed_bytes"}),
    Series: frozenset({"fence", "file_id"}),
    Checkpoint: frozenset(
        {"fence", "location", "upload_id", "upload_began_at", "trouble", "pinned_by",
         "deleted_at", "deleted_by", "deleted_why"}
    ),
    FindingRow: frozenset({"id", "fence"}),
    ProfiledRank: frozenset({"fence"}),
    HistoryEntry: frozenset({"id", "run_id"}),
    Snapshot: frozenset(),
    WatchedRun: frozenset({"run_id", "key"}),
}  # fmt: skip
"""Columns that mean nothing in another store, or are no other's business."""


def _of_spec(changes: Row) -> Row:
    """Check fields of a spec that differ for an attempt. Raises ValidationError, ValueError."""
    spec = RunSpec.model_validate({"target": "image_classifier"} | changes)
    if odd := changes.keys() - CHANGED:
        raise ValueError(f"{min(odd)} never differs between attempts")
    return {name: getattr(spec, name) for name in changes}


CHANGED = frozenset({"nodes", "gpus_per_node", "accumulate", "batch_size", "lr", "lr_scaling", "args"})
Changes = Annotated[Row, AfterValidator(_of_spec)]


class _Rollback(Rollback):
    changes: Changes = Field(default_factory=dict)


REPORTED: Mapping[type[Base], Mapping[str, Any]] = {
    Attempt: {"changes": Changes, "rollback": _Rollback, "error": RankError},
    Task: {
        "devices": list[str], "argv": list[str], "env": dict[str, str], "error": RankError, "interpreter": Facts,
        "preflight": NodeCheck, "stacks": Stacks, "collectives": NodeCollectives, "timeline": list[PhaseEnd],
    },
    Node: {"devices": list[Device], "labels": dict[str, str], "info": Facts},
    ProfiledRank: {"overview": Overview, "flame": list[Frame]},
    WatchedRun: {"command": list[str]},
}  # fmt: skip
"""JSON of other stores is checked like the reports of nodes: its readers rely on its form."""


def document_of(row: Base) -> dict[str, Any]:
    """Return the values of a row that mean the same in every store."""
    return {column.key: getattr(row, column.key) for column in _columns(type(row))}


def row_of(table: type[RowT], document: Mapping[str, Any], **more: Any) -> RowT:
    """Return a new row with the document's values, and `more` in place of some. Raises ValidationError."""
    return table(**checked(table, document) | more)


def checked(table: type[Base], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document's values of the table's columns; others are ignored. Raises ValidationError."""
    return _model(table).model_validate(document).model_dump(exclude_unset=True)


def _columns(table: type[Base]) -> list[Column[Any]]:
    columns = cast(Table, table.__table__).columns
    return [column for column in columns if column.key not in OWN_TO_A_STORE[table]]


@cache
def _model(table: type[Base]) -> type[BaseModel]:
    fields: dict[str, Any] = {column.key: _field(column, REPORTED.get(table, {})) for column in _columns(table)}
    return create_model(table.__name__, __config__=ConfigDict(extra="ignore"), **fields)


def _field(column: Column[Any], reported: Mapping[str, Any]) -> tuple[Any, Any]:
    kind = reported.get(column.key) or _kind(column)
    if column.nullable:
        return (kind | None, None)
    has_default = column.default is not None or column.server_default is not None
    return (kind, None if has_default else ...)


def _kind(column: Column[Any]) -> Any:
    match column.type:
        case ExactFloat() | Float():
            return float
        case Boolean():
            return bool
        case JSON():
            return dict[str, Any] | list[Any]
        case String() as text:
            return Annotated[str, Field(max_length=text.length)]
        case Integer() as number:
            most = 2**63 if isinstance(number, BigInteger) else 2**31
            return Annotated[int, Field(ge=-most, lt=most)]
    raise TypeError(f"{column} is of no kind that an archive holds")
