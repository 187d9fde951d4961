"""Brings batches of points to the server; what it never takes is set aside, so that the rest goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from domain.messages import PointBatch
from worker.session.failures import RequestRefused, ServerMistake, TooLarge
from worker.streams.omissions import Omissions

log = logging.getLogger(__name__)
TRIES = 8
"""A mistake of the server's may be mended by then; the tries are further apart each time."""


class Delivery:
    """Of one attempt's points, from whatever source. Called by one thread."""

    def __init__(self, send: Callable[[PointBatch], int], omissions: Omissions) -> None:
        self._send, self._omissions = send, omissions
        self._mistakes: dict[tuple[str, int, int], int] = {}

    def send(self, batch: PointBatch) -> int:
        """The offset behind the batch. What the server raises goes through, but what set the batch aside."""
        try:
            offset = self._send(batch)
        except TooLarge:
            raise  # a smaller one may pass
        except RequestRefused as refusal:
            return self._set_aside(batch, refusal)
        except ServerMistake as mistake:
            if not self._is_to_blame(batch):
                raise
            return self._set_aside(batch, mistake)
        self._mistakes.pop(_place(batch), None)
        return offset

    def _is_to_blame(self, batch: PointBatch) -> bool:
        """After so many tries, and only where the server takes the file's offset without the points."""
        tries = self._mistakes[_place(batch)] = self._mistakes.get(_place(batch), 0) + 1
        if tries < TRIES:
            return False
        self._send(batch.model_copy(update={"series": {}, "end": batch.start}))
        return True

    def _set_aside(self, batch: PointBatch, why: Exception) -> int:
        """Kept on the disk first; then the server's offset moves on without it."""
        if not any(batch.series.values()):
            raise why
        self._omissions.set_aside(batch, str(why))
        self._mistakes.pop(_place(batch), None)
        return self._send(batch.model_copy(update={"series": {}}))


def _place(batch: PointBatch) -> tuple[str, int, int]:
    return batch.path, batch.generation, batch.start
