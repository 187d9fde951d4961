"""What of an attempt cannot be read: each such stream is tried again, told in a finding, and holds up no end."""

from __future__ import annotations

import errno
import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from domain.messages import Finding
from domain.text.json_values import storable
from worker.session.failures import OF_THE_SERVER
from worker.session.pieces import Sending

log = logging.getLogger(__name__)
PATIENCE_S = 30.0
"""So long an ended attempt waits for a stream whose failure may pass."""
RETRY_S = 5.0
MOST_NAMED = 10


@dataclass
class _Failure:
    since: float
    retry_at: float
    reason: str
    may_pass: bool
    """Whether another try may succeed: a network file system comes back, a damaged file stays damaged."""


class Unreadable:
    """The streams and files of one attempt that fail now, by their names. Called by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, _Failure] = {}

    def is_due(self, name: str) -> bool:
        """Whether to read it now: it has not failed, or long enough ago."""
        failure = self._failures.get(name)
        return failure is None or self._clock() >= failure.retry_at

    def failed(self, name: str, error: Exception) -> None:
        """Note that reading it raised `error`; it is due again some seconds later."""
        now = self._clock()
        reason = storable(f"{type(error).__name__}: {error}"[:300])
        known = self._failures.get(name)
        if known is None or known.reason != reason:
            told = storable("".join(traceback.format_exception(error)).rstrip())
            log.warning("%s cannot be read, all else goes on: %s", storable(name), told)
        since = known.since if known else now
        self._failures[name] = _Failure(since, now + RETRY_S, reason, isinstance(error, OSError))

    def worked(self, name: str) -> None:
        """Note that it can be read again."""
        if self._failures.pop(name, None):
            log.info("%s can be read again", storable(name))

    def has_failed(self, name: str) -> bool:
        """Whether it failed when it was last tried."""
        return name in self._failures

    @property
    def may_recover(self) -> bool:
        """Whether something failed so recently that an end should wait for it."""
        now = self._clock()
        return any(failure.may_pass and now - failure.since < PATIENCE_S for failure in self._failures.values())

    def guarded(self, name: str, step: Callable[[], Sending[bool]]) -> Sending[bool]:
        """Take the step of a stream; where it fails by itself, nothing more of it waits to be sent.

        Raises what the client raises, and OSError where the node's disk is full: then the data waits for space."""
        if not self.is_due(name):
            return False
        try:
            more = yield from step()
        except OF_THE_SERVER:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.failed(name, error)
            return False
        self.worked(name)
        return more

    def findings(self) -> list[Finding]:
        """Return one finding for all that cannot be read now."""
        if not self._failures:
            return []
        sentences = [
            f"{storable(name)[-300:]}: {failure.reason.rstrip('.')}."
            for name, failure in list(self._failures.items())[:MOST_NAMED]
        ]
        if more := len(self._failures) - len(sentences):
            sentences.append(f"And {more} more.")
        return [
            Finding(
                kind="not read",
                evidence=" ".join(sentences),
                meaning="The values in it are missing from the curves. Everything else of the run is stored, and the "
                "file is still on its node.",
                fix="Open the file on its node: it may be damaged, or written by something else than its name "
                "says. If it is whole, report the sentence above with the worker's log.",
            )
        ]
