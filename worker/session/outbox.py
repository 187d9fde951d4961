"""Sends the data of several streams in one request: each offers pieces, takes their answers, and fails alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from domain.messages import MOST_BYTES
from worker.session.client import Client
from worker.session.failures import RequestFailed, ServerAway, ServerMistake
from worker.session.pieces import Answer, Piece, deliver


def send(client: Client, outgoing: Outgoing) -> None:
    """Send the pending pieces, a round at a time, until none is left. Raises what `outgoing` raises."""
    while pieces := outgoing.pending():
        outgoing.answered(deliver(client, pieces))


def pass_on(failure: Exception | None) -> None:
    """Raise the failure, if there is one."""
    if failure is not None:
        raise failure


class Outgoing(ABC):
    """Something on its way to the server: it offers its next pieces, then takes the answer to each."""

    conclude: Callable[[Exception | None], None] = staticmethod(pass_on)
    """Called at its end with the failure, or None; raises a failure that concerns the others of its group."""

    @abstractmethod
    def pending(self) -> Sequence[Piece]:
        """Return the next pieces; none once all are answered."""

    @abstractmethod
    def answered(self, answers: Sequence[Answer]) -> None:
        """Take the answers to these pieces, in their order."""


class Outbox(Outgoing):
    """Groups of Outgoing, sent one after another: the next pieces of all in a group make one round.

    A ServerMistake is raised once all groups have ended, any other failure once all have the answers of its round,
    and ServerAway at once."""

    def __init__(
        self, groups: Iterable[Iterable[Outgoing]], conclude: Callable[[Exception | None], None] = pass_on
    ) -> None:
        """`groups`, and the parts of each, are read when they have their turn: no more than a request is in memory."""
        self.conclude, self._groups = conclude, iter(groups)
        self._group: Iterator[Outgoing] = iter(())
        self._open: list[tuple[Outgoing, int]] = []
        """The parts that have not ended, with the number of their pieces that wait for answers."""
        self._room_bytes = MOST_BYTES
        self._mistake: ServerMistake | None = None
        self._failure: Exception | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a part has failed by now."""
        return bool(self._failure or self._mistake)

    def pending(self) -> list[Piece]:
        """Return the next pieces; none once the last group has ended. Raises the first failure."""
        going_on, self._open, pieces = [part for part, _ in self._open], [], list[Piece]()
        self._room_bytes = MOST_BYTES
        with self._noted():
            for part in self._in_turn(going_on):
                with self._noted(part.conclude):
                    if offered := part.pending():
                        self._open.append((part, len(offered)))
                        self._room_bytes -= sum(len(piece.content) for piece in offered)
                        pieces += offered
                    else:
                        part.conclude(None)
        if not pieces and (failure := self._failure or self._mistake):
            raise failure
        return pieces

    def answered(self, answers: Sequence[Answer]) -> None:
        """Take the answers. Raises the first failure, unless it is a ServerMistake."""
        waiting, self._open, at = self._open, [], 0
        for part, count in waiting:
            at += count
            with self._noted(part.conclude):
                part.answered(answers[at - count : at])
                self._open.append((part, 0))
        if self._failure is not None:
            raise self._failure

    def _in_turn(self, going_on: Sequence[Outgoing]) -> Iterator[Outgoing]:
        """Yield the parts that continue, then others while there is room; the next group follows once all end."""
        yield from going_on
        while self._room_bytes > 0 and self._failure is None:
            if (part := next(self._group, None)) is not None:
                yield part
            elif self._open or (group := next(self._groups, None)) is None:
                return
            else:
                self._group = iter(group)

    @contextmanager
    def _noted(self, conclude: Callable[[Exception | None], None] = pass_on) -> Iterator[None]:
        """Note a failure that `conclude` raises; raise ServerAway."""
        try:
            yield
        except Exception as error:
            try:
                conclude(error)
            except ServerMistake as mistake:
                self._mistake = mistake
            except Exception as failure:
                self._failure = self._failure or failure
                if isinstance(failure, ServerAway) and not isinstance(failure, RequestFailed):
                    raise


class StreamStep(Outbox):
    """A bounded part of a stream's data."""

    sent = 0
    """Number of batches or bytes that the server has taken."""
    has_more = False
    """Whether the stream is to have its next turn soon; valid once all is sent."""

    def __init__(self, groups_of: Callable[[Self], Iterable[Iterable[Outgoing]]]) -> None:
        """`groups_of` returns the groups of the step it is called with; they set `sent` and `has_more`."""
        super().__init__(groups_of(self))
