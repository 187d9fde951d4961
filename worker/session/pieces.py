"""Send what several streams have to say in one request, while each stays a simple series of steps of its own.

A stream is a generator (`Sending`): it yields the pieces it wants to send, and goes on with their answers. `together`
runs several in step, so that their pieces make one request; `deliver` sends it and says of each piece how it went."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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
    ServerMistake,
    offset_in,
    raise_for,
)

T = TypeVar("T")


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
Sending = Generator[list[Piece], list[Answer], T]


def sent(piece: Piece) -> Sending[int]:
    """Send a piece; returns the offset that the server has then. Raises what `Client` raises for it."""
    (answer,) = yield [piece]
    if isinstance(answer, Exception):
        raise answer
    return answer


def at_once(step: Callable[[], bool | None]) -> Sending[bool]:
    """A step that sends nothing this way."""
    yield from ()
    return bool(step())


def in_turn(*steps: Callable[[], Sending[bool]]) -> Sending[bool]:
    """Run steps one after another; True if one has more. Raises the last ServerMistake after all have run."""
    more, failure = False, None
    for step in steps:
        try:
            more = (yield from step()) or more
        except ServerMistake as error:
            failure = error
    if failure is not None:
        raise failure
    return more


def together(sendings: Iterable[Sending[T]]) -> Sending[list[T]]:
    """Run several in step; returns their results, in their order.

    A ServerMistake is raised once all others have ended, any other failure once those begun have their answers."""
    return (yield from _Together(iter(sendings)).run())


class _Together(Generic[T]):
    def __init__(self, waiting: Iterator[Sending[T]]) -> None:
        self._waiting = enumerate(waiting)
        self._open: dict[int, tuple[Sending[T], list[Piece]]] = {}
        self._results: dict[int, T] = {}
        self._mistake: ServerMistake | None = None
        self._failure: Exception | None = None

    def run(self) -> Sending[list[T]]:
        """Send until all have ended; the failure, or else the mistake, is raised once those begun have answers."""
        try:
            self._begin()
            while self._open:
                answers = iter((yield [piece for _, pieces in self._open.values() for piece in pieces]))
                for number, (sending, pieces) in [*self._open.items()]:
                    self._go_on(number, sending, [next(answers) for _ in pieces])
                if self._failure is not None:
                    break
                self._begin()
        finally:
            for sending, _ in self._open.values():
                sending.close()
        if failure := self._failure or self._mistake:
            raise failure
        return [self._results[number] for number in sorted(self._results)]

    def _begin(self) -> None:
        """Begin with as many as fit into a request."""
        size_bytes = sum(map(_size_bytes, self._open.values()))
        while self._failure is None and size_bytes < MOST_BYTES:
            try:
                number, sending = next(self._waiting)
            except StopIteration:
                return
            except ServerMistake as mistake:
                self._mistake = mistake
            except Exception as failure:
                self._fail(failure)
            else:
                self._go_on(number, sending, None)
                if number in self._open:
                    size_bytes += _size_bytes(self._open[number])

    def _go_on(self, number: int, sending: Sending[T], answers: list[Answer] | None) -> None:
        try:
            pieces = next(sending) if answers is None else sending.send(answers)
            self._open[number] = sending, pieces
            return
        except StopIteration as end:
            self._results[number] = end.value
        except ServerMistake as mistake:
            self._mistake = mistake
        except Exception as failure:
            self._fail(failure)
        self._open.pop(number, None)

    def _fail(self, failure: Exception) -> None:
        """Note the first failure; without a connection nothing else need be tried."""
        self._failure = self._failure or failure
        if isinstance(failure, ServerAway) and not isinstance(failure, RequestFailed):
            raise failure


def _size_bytes(begun: tuple[Sending[T], list[Piece]]) -> int:
    """Bytes of the pieces that one of several has yielded."""
    return sum(len(piece.content) for piece in begun[1])


def run(client: Client, sending: Sending[T]) -> T:
    """Run to the end, sending what is yielded. Raises what `sending` raises."""
    try:
        pieces = next(sending)
        while True:
            pieces = sending.send(deliver(client, pieces))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


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
    except RequestRefused as refusal:  # too large for a proxy, or one of them has no sense
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
