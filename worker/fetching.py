"""Fetches what an attempt needs before it starts, however long the server is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from db.spec import ResumeFrom
from db.states import Reason
from worker.client import Client, Refused, ServerAway
from worker.preparation import CannotStart

log = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0


class Fetching:
    """Of one attempt; runs in the thread that prepares it, and ends when `is_stopped` says so."""

    def __init__(self, client: Client, label: str, is_stopped: Callable[[], bool]) -> None:
        self._client, self._label, self._is_stopped = client, label, is_stopped

    def checkpoint(self, source: ResumeFrom, target: Path) -> None:
        """The checkpoint to resume from. Raises CannotStart."""
        what = f"the checkpoint {source.name}"
        self._fetch(what, lambda: self._client.download(source, target), Reason.RESUME_FAILED)

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
            except Refused as error:
                text = f"{what[0].upper()}{what[1:]} could not be fetched: {error}"
                raise CannotStart(reason, text) from error
            time.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        raise CannotStart(reason, f"It was stopped while {what} was being fetched.")
