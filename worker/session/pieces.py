"""Points of a byte range and bytes of a file as pieces, and how many of them are sent in one request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from domain.messages import MOST_BYTES, MOST_PIECES, PieceAnswer, PieceHead, Point, PointBatch
from domain.points import body_of
from worker.session.client import Client, TaskRef
from worker.session.failures import (
    AttemptSuperseded,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerAway,
    offset_in,
    raise_for,
)


@dataclass(frozen=True)
class Piece:
    """Points of one byte range of a file, or bytes of a mirrored one."""

    head: PieceHead
    content: bytes
    end: int
    """The offset that the server has once it is stored."""


def points_piece(task: TaskRef, batch: PointBatch) -> Piece:
    """Return the points as a piece."""
    if task.mask:
        batch = _masked(task, batch)
    return _piece(task, body_of(batch), batch.end)


def _masked(task: TaskRef, batch: PointBatch) -> PointBatch:
    """The batch with secrets masked in the names of its file and its series."""
    series: dict[str, list[Point]] = {}
    for tag, points in batch.series.items():
        series.setdefault(task.mask.text(tag), []).extend(points)
    return batch.model_copy(update={"path": task.mask.text(batch.path), "series": series})


def bytes_piece(task: TaskRef, path: str, generation: int, offset: int, content: bytes) -> Piece:
    """Return bytes of the file at `path` as a piece."""
    path = task.mask.text(path)
    return _piece(task, content, offset + len(content), path=path, generation=generation, offset=offset)


def _piece(task: TaskRef, content: bytes, end: int, **place: Any) -> Piece:
    owner = {"fence": task.fence, "node_rank": task.node_rank, "label": task.label}
    return Piece(PieceHead.model_validate(owner | place | {"size_bytes": len(content)}), content, end)


Answer = int | Exception
"""The offset that the server has now, or what the client raises for that piece."""


def deliver(client: Client, pieces: Sequence[Piece]) -> list[Answer]:
    """Send pieces, as many in a request as pass; return the answer to each."""
    answers, away = list[Answer](), None
    most_bytes = client.body_limit.most(MOST_BYTES)
    for some in _bundles(pieces, most_bytes):
        answers += [away] * len(some) if away else _deliver_bundle(client, some)
        if isinstance(last := answers[-1], ServerAway) and not isinstance(last, RequestFailed):
            away = last
    return answers


def _bundles(pieces: Sequence[Piece], most_bytes: int) -> Iterator[Sequence[Piece]]:
    """Divide pieces into those of one request each."""
    begin = total = 0
    for at, piece in enumerate(pieces):
        size = len(piece.content)
        if at > begin and (total + size > most_bytes or at - begin == MOST_PIECES):
            yield pieces[begin:at]
            begin, total = at, 0
        total += size
    yield pieces[begin:]


def _deliver_bundle(client: Client, pieces: Sequence[Piece]) -> list[Answer]:
    try:
        answers = client.bundle([piece.head for piece in pieces], [piece.content for piece in pieces])
        return [_read(client, piece, answer) for piece, answer in zip(pieces, answers, strict=True)]
    except RequestRefused as refusal:  # too large for a proxy, or one of them is malformed
        if len(pieces) == 1:
            return [refusal]
        half = len(pieces) // 2
        return _deliver_bundle(client, pieces[:half]) + _deliver_bundle(client, pieces[half:])
    except Exception as error:  # each stream decides what follows for it
        return [error] * len(pieces)


def _read(client: Client, piece: Piece, answer: PieceAnswer) -> Answer:
    try:
        if answer.status == 200:
            return offset_in(answer.body, piece.end, piece.end)
        request = httpx2.Request("POST", client.url)
        response = httpx2.Response(answer.status, json=answer.body, request=request)
        raise_for(response, AttemptSuperseded, RequestRefused)
    except (ServerAway, AttemptSuperseded, RequestRefused, OffsetMismatch) as error:
        return error
    raise AssertionError("raise_for always raises")
