"""What the program prints: its progress, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from domain.clock import Clock
from domain.masking.values import ValueMask


class PushRefused(Exception):
    """The place, its credentials or this Python does not allow it; one sentence for people."""


class PushFailed(Exception):
    """The disk failed, or what arrived is not what was sent; one sentence for people."""


class Cut(Exception):
    """The place could not be reached: what is there already is not sent again."""


class PushReport:
    """Prints lines of JSON without any secret in them; of the progress at most five a second."""

    def __init__(self, write: Callable[[str], object], secrets: Iterable[str], clock: Clock) -> None:
        self._write, self._mask, self._clock = write, ValueMask(secrets), clock
        self._printed_at: float | None = None
        self.total_bytes = 0
        self.sent_bytes = 0
        """Bytes of files that went over the network, without those that were there already, or that a commit held."""
        self._done_bytes, self._doing = 0, ""

    def doing(self, what: str) -> None:
        """Name what is being done, as a part of a sentence."""
        self._doing = what
        self._progress(at_once=True)

    def at(self, done_bytes: int) -> None:
        """Take how far all files together are."""
        self._done_bytes = done_bytes
        self._progress(at_once=False)

    def end(self, **outcome: Any) -> None:
        """Print the last line."""
        self._print(outcome)

    def _progress(self, *, at_once: bool) -> None:
        now = self._clock.now()
        if at_once or self._printed_at is None or now - self._printed_at >= PROGRESS_EVERY_S:
            self._printed_at = now
            self._print({"progress": [self._done_bytes, self.total_bytes, self._doing]})

    def _print(self, document: dict[str, Any]) -> None:
        self._write(json.dumps(self._mask.document(document)) + "\n")


PROGRESS_EVERY_S = 0.2
