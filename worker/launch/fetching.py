"""Fetches what an attempt needs before it starts, however long the server is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from domain.messages import CheckpointFetch, Reason
from domain.spec import ResumeFrom
from worker.launch.preparation import CannotStart
from worker.session.client import Client
from worker.session.failures import RequestRefused, ServerAway

log = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
TELL_EVERY_S = 1.0


class Fetching:
    """Of one attempt; runs in the thread that prepares it, and ends when `is_stopped` says so."""

    def __init__(
        self,
        client: Client,
        label: str,
        is_stopped: Callable[[], bool],
        tell: Callable[[CheckpointFetch], None],
    ) -> None:
        self._client, self._label, self._is_stopped, self._tell = client, label, is_stopped, tell
        self._tell_at = 0.0

    def checkpoint(self, source: ResumeFrom, target: Path) -> None:
        """The checkpoint to resume from; of a large one it is told how far it has come. Raises CannotStart."""
        what = f"the checkpoint {source.name}"
        fetch = CheckpointFetch(name=source.name, done_bytes=0, size_bytes=source.size_bytes)
        self._tell_at = time.monotonic() + TELL_EVERY_S

        def reached(done_bytes: int) -> None:
            if self._is_stopped():
                raise _stopped(what, Reason.RESUME_FAILED)
            if time.monotonic() >= self._tell_at:
                self._tell(fetch.model_copy(update={"done_bytes": done_bytes}))
                self._tell_at = time.monotonic() + TELL_EVERY_S

        self._fetch(what, lambda: self._client.download(source, target, reached), Reason.RESUME_FAILED)
        self._tell(fetch.model_copy(update={"done_bytes": source.size_bytes, "is_verified": True}))

    def code(self, sha256: str, target: Path) -> None:
        """The archive of a code snapshot. Raises CannotStart."""
        what = f"the code (snapshot {sha256[:12]})"
        self._fetch(what, lambda: self._client.download_snapshot(sha256, target), Reason.LAUNCH_FAILED)

    def _fetch(self, what: str, download: Callable[[], None], reason: Reason) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._is_stopped():
            try:
                download()
                return
            except ServerAway as error:
                log.info("attempt %s: %s is still on its way: %s", self._label, what, error)
            except RequestRefused as error:
                text = f"{what[0].upper()}{what[1:]} could not be fetched: {error}"
                raise CannotStart(reason, text) from error
            time.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        raise _stopped(what, reason)


def _stopped(what: str, reason: Reason) -> CannotStart:
    return CannotStart(reason, f"It was stopped while {what} was being fetched.")
