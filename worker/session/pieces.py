"""Send what several streams have to say in one request, while each stays a simple series of steps of its own.

A stream is a generator (`Sending`): it yields the pieces it wants to send, and goes on with their answers. `together`
runs several in step, so that their pieces make one request; `deliver` sends it and says of each piece how it went."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx2

from domain.messages import PointBatch
from domain.pieces import MOST_PIECES, Bundle, PieceAnswer, PieceHead
from worker.session.client import Client, TaskRef
from worker.session.failures import (
    AttemptSuperseded,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerAway,
    ServerMistake,
    TooLarge,
    offset_in,
    raise_for,
)

T = TypeVar("T")
TOGETHER_BYTES = 2 * 1024 * 1024
"""No further stream is asked for its pieces once those at hand have so many bytes."""


@dataclass(frozen=True)
class PointsPiece:
    """Points of one byte range of a file."""

    task: TaskRef
    batch: PointBatch

    @property
    def size_bytes(self) -> int:
        """About the size of its content."""
        return self.batch.end - self.batch.start

    @property
    def end(self) -> int:
        """The offset that the server has once it is stored."""
        return self.batch.end

    def encoded(self) -> tuple[PieceHead, bytes]:
        """Its head and content."""
        content, task = self.batch.model_dump_json().encode(), self.task
        return PieceHead(
            fence=task.fence, node_rank=task.node_rank, label=task.label, size_bytes=len(content)
        ), content

    def send(self, client: Client) -> int:
        """Send it by a request of its own; return the offset up to which the server has the points."""
        return client.points(self.task, self.batch)


@dataclass(frozen=True)
class BytesPiece:
    """Bytes of a mirrored file."""

    task: TaskRef
    path: str
    generation: int
    offset: int
    content: bytes

    @property
    def size_bytes(self) -> int:
        """The size of its content."""
        return len(self.content)

    @property
    def end(self) -> int:
        """The offset that the server has once it is stored."""
        return self.offset + len(self.content)

    def encoded(self) -> tuple[PieceHead, bytes]:
        """Its head and content."""
        task, place = self.task, {"path": self.path, "generation": self.generation, "offset": self.offset}
        head = {"fence": task.fence, "node_rank": task.node_rank, "label": task.label}
        return PieceHead.model_validate(head | place | {"size_bytes": self.size_bytes}), self.content

    def send(self, client: Client) -> int:
        """Send it by a request of its own; return the offset up to which the server has the file."""
        return client.append(self.task, self.path, self.generation, self.offset, self.content)


Piece = PointsPiece | BytesPiece
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
        while self._failure is None and self._size_bytes() < TOGETHER_BYTES:
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

    def _size_bytes(self) -> int:
        return sum(piece.size_bytes for _, pieces in self._open.values() for piece in pieces)

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


def run(client: Client, sending: Sending[T]) -> T:
    """Run to the end, sending what is yielded. Raises what `sending` raises."""
    try:
        pieces = next(sending)
        while True:
            pieces = sending.send(deliver(client, pieces))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def deliver(client: Client, pieces: Sequence[Piece]) -> list[Answer]:
    """Send pieces, as many in a request as the server takes; return the answer to each."""
    if len(pieces) < 2 or not client.bundle_bytes:
        return _one_by_one(client, pieces)
    answers = list[Answer]()
    encoded = [piece.encoded() for piece in pieces]
    for begin, end in _bundles([len(content) for _, content in encoded], client.bundle_bytes):
        answers += _deliver_bundle(client, pieces[begin:end], encoded[begin:end])
    return answers


def _bundles(sizes: Sequence[int], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Divide pieces of these sizes into requests."""
    begin = total = 0
    for at, size in enumerate(sizes):
        if at > begin and (total + size > most_bytes or at - begin == MOST_PIECES):
            yield begin, at
            begin, total = at, 0
        total += size
    yield begin, len(sizes)


def _deliver_bundle(
    client: Client, pieces: Sequence[Piece], encoded: Sequence[tuple[PieceHead, bytes]]
) -> list[Answer]:
    if len(pieces) == 1:
        return _one_by_one(client, pieces)
    try:
        answers = client.bundle(Bundle.body(*zip(*encoded, strict=True)), len(pieces))
        return [_read(client, piece, answer) for piece, answer in zip(pieces, answers, strict=True)]
    except TooLarge:  # for a proxy in front of the server
        half = len(pieces) // 2
        first = _deliver_bundle(client, pieces[:half], encoded[:half])
        return first + _deliver_bundle(client, pieces[half:], encoded[half:])
    except RequestRefused:  # each is refused by itself, or by an older server none
        return _one_by_one(client, pieces)
    except ServerAway as error:
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


def _one_by_one(client: Client, pieces: Iterable[Piece]) -> list[Answer]:
    """Send each by itself; what fails at one of a task is not tried with the others of that task."""
    failures, answers = dict[TaskRef, Exception](), list[Answer]()
    away: ServerAway | None = None
    for piece in pieces:
        answer: Answer = away or failures.get(piece.task) or _single(client, piece)
        answers.append(answer)
        if isinstance(answer, RequestFailed) and not isinstance(answer, ServerMistake):
            failures[piece.task] = answer
        elif isinstance(answer, ServerAway) and not isinstance(answer, RequestFailed):
            away = answer
    return answers


def _single(client: Client, piece: Piece) -> Answer:
    try:
        return piece.send(client)
    except Exception as error:  # each stream decides what follows for it
        return error
