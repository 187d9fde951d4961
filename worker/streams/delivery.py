"""Deliver batches of points to the server, and set aside those that it never accepts."""

from __future__ import annotations

import logging
from collections.abc import Callable

from domain.messages import PointBatch
from worker.session.failures import RequestRefused, ServerMistake, TooLarge
from worker.streams.omissions import Omissions

log = logging.getLogger(__name__)
TRIES = 8
"""Tries before a batch is blamed for the server's mistakes; the time between them grows."""


class Delivery:
    """Delivery of one attempt's points from all sources. Called by one thread."""

    def __init__(self, send: Callable[[PointBatch], int], omissions: Omissions) -> None:
        self._send, self._omissions = send, omissions
        self._mistakes: dict[tuple[str, int, int], int] = {}

    def send(self, batch: PointBatch) -> int:
        """Send a batch, or set it aside when the server never accepts it; return the server's new offset.

        Raises TooLarge, OffsetMismatch and every failure that may pass with another try.
        """
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
        self._mistakes.pop(_key(batch), None)
        return offset

    def _is_to_blame(self, batch: PointBatch) -> bool:
        """Whether the server failed `TRIES` times, and still accepts the same offset without the points."""
        tries = self._mistakes[_key(batch)] = self._mistakes.get(_key(batch), 0) + 1
        if tries < TRIES:
            return False
        self._send(batch.model_copy(update={"series": {}, "end": batch.start}))
        return True

    def _set_aside(self, batch: PointBatch, error: Exception) -> int:
        """Save the batch on disk, then move the server's offset past it."""
        if not any(batch.series.values()):
            raise error
        self._omissions.set_aside(batch, str(error))
        self._mistakes.pop(_key(batch), None)
        return self._send(batch.model_copy(update={"series": {}}))


def _key(batch: PointBatch) -> tuple[str, int, int]:
    return batch.path, batch.generation, batch.start
