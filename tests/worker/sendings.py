"""Steps whose pieces go straight to a server in memory, without a client between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.worker.fake_server import FakeServer
from worker.attempt.uploader import AttemptUploader
from worker.session.client import Client
from worker.session.outbox import Outbox, StreamStep, send
from worker.session.pieces import Answer
from worker.streams.point_uploader import STEP_BATCHES, PointStep


@dataclass(frozen=True)
class PieceInMemory:
    """A piece, and the server's function that takes it."""

    send: Callable[[], int]
    content = b""

    def answer(self) -> Answer:
        """Return the server's answer."""
        try:
            return self.send()
        except Exception as error:
            return error


def answering(send: Callable[..., int]) -> Callable[..., Any]:
    """Return the function with which streams make pieces for `send`."""
    return lambda *args: PieceInMemory(partial(send, *args))


def done(step: StreamStep) -> int:
    """Take a step; returns the bytes or batches that were sent, `STEP_BATCHES` where more batches are waiting."""
    while pieces := step.pending():
        step.answered([piece.answer() for piece in pieces])  # type: ignore[attr-defined]
    if not isinstance(step, PointStep):
        return step.sent
    return STEP_BATCHES if step.has_more else min(step.sent, STEP_BATCHES - 1)


def upload_remaining(uploader: AttemptUploader, client: Client | FakeServer) -> bool:
    """Send the remaining data of an ended attempt; True if more is waiting."""
    send(client, Outbox(uploader.upload_remaining()))  # type: ignore[arg-type]
    return uploader.has_more
