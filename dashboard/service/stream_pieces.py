"""Take pieces of streams: points and bytes of files, each exactly once, as many together as one request brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dashboard.service.service import Service
from dashboard.storage.files import note_arrival
from db.engine import StoreGone
from db.exceptions import Superseded
from db.tasks import task_reports
from db.tasks.task_reports import Arrival, FileGrowth, FileState, StreamKey
from domain.points import PackedBatch


@dataclass(frozen=True)
class ArrivedPiece:
    """Points of one byte range of a file, or bytes for it from an offset on, as a worker sent them."""

    stream: StreamKey
    batch: PackedBatch | None = None
    offset: int = 0
    content: bytes = b""


@dataclass(frozen=True)
class Taken:
    """The offset that the store has now, and whether the piece began at the one before it."""

    offset: int
    is_stored: bool = True


Outcome = Taken | Exception


def take(service: Service, node_id: str, pieces: Sequence[ArrivedPiece]) -> list[Outcome]:
    """Store pieces together; where that fails, each by itself, so that only those that cannot be stored fail.

    Raises what no piece is to blame for: a store that takes nothing."""
    try:
        return _take(service, node_id, pieces)
    except (OperationalError, PoolTimeout, StoreGone):
        raise
    except Exception as error:
        if len(pieces) == 1 or service.store.trouble_of(error) is not None:
            raise
    return [_take_alone(service, node_id, piece) for piece in pieces]


def _take_alone(service: Service, node_id: str, piece: ArrivedPiece) -> Outcome:
    try:
        return _take(service, node_id, [piece])[0]
    except Exception as error:
        return error


def _take(service: Service, node_id: str, pieces: Sequence[ArrivedPiece]) -> list[Outcome]:
    if not pieces:
        return []
    files = {piece.stream for piece in pieces if piece.batch is None}
    with service.files.locked(*files), service.store.alone(*(f"file {tuple(key)}" for key in files)):
        offers = [(piece.stream, piece.batch) for piece in pieces]
        states = task_reports.streams_arrived(service.store, node_id, offers)
        for piece, state in zip(pieces, states, strict=True):
            if isinstance(state, Arrival) and piece.batch is not None:
                service.registry.record_contact(node_id)
                service.points_arrived(state, piece.batch.source, piece.stream.node_rank)
        outcomes = [_outcome(service, piece, state) for piece, state in zip(pieces, states, strict=True)]
        grown = {
            at: FileGrowth(state.id, piece.offset, outcome.offset)
            for at, (piece, state, outcome) in enumerate(zip(pieces, states, outcomes, strict=True))
            if isinstance(state, FileState) and isinstance(outcome, Taken) and outcome.is_stored
        }
        if grown:
            ends = task_reports.files_grew(service.store, [*grown.values()])
            for (at, growth), end in zip(grown.items(), ends, strict=True):
                outcomes[at] = Taken(end) if end is not None else _of_erased(service, growth.file_id)
    for fence in {pieces[at].stream.fence for at in grown}:
        service.file_grew(fence)
    return outcomes


def _outcome(service: Service, piece: ArrivedPiece, state: Arrival | FileState | Exception) -> Outcome:
    """The outcome of a piece whose points are stored, or whose file the store knows."""
    if isinstance(state, Exception):
        return state
    if isinstance(state, Arrival):
        return Taken(state.offset, state.stored)
    if piece.offset != state.size_bytes:
        return Taken(state.size_bytes, False)
    try:
        return _append(service, piece, state.id)
    except OSError as error:
        return error


def _of_erased(service: Service, file_id: int) -> Superseded:
    """Remove the bytes of a file whose run was erased while they arrived; return the answer to its worker."""
    service.files.remove([file_id], [])
    return Superseded("The attempt no longer exists: its run was deleted.")


def _append(service: Service, piece: ArrivedPiece, file_id: int) -> Taken:
    end = piece.offset + len(piece.content)
    service.files.append(file_id, piece.offset, piece.content)
    if piece.content and piece.stream.path.startswith("logs/"):
        note_arrival(service.files.arrivals(file_id), piece.offset, end, round(service.clock() * 1000))
    return Taken(end)
