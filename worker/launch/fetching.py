"""Downloads an attempt's checkpoint and code before it starts, waiting while the server is unavailable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from domain.messages import CheckpointFetch, Reason
from domain.spec import ResumeFrom
from worker.launch.preparation import CannotStart
from worker.session.client import Client
from worker.session.failures import ChecksumMismatch, RequestRefused, ServerAway

log = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
REPORT_EVERY_S = 1.0


class Downloads:
    """The downloads of one attempt; runs in the thread that prepares it, and ends once `is_stopped` is true."""

    def __init__(
        self,
        client: Client,
        label: str,
        is_stopped: Callable[[], bool],
        report: Callable[[CheckpointFetch], None],
    ) -> None:
        self._client, self._label, self._is_stopped, self._report = client, label, is_stopped, report
        self._report_at = 0.0

    def fetch_checkpoint(self, source: ResumeFrom, target: Path) -> None:
        """Download the checkpoint to resume from, reporting the progress. Raises CannotStart."""
        subject = f"the checkpoint {source.name}"
        fetch = CheckpointFetch(name=source.name, done_bytes=0, size_bytes=source.size_bytes)
        self._report_at = time.monotonic() + REPORT_EVERY_S

        def on_progress(done_bytes: int) -> None:
            """Report the progress now and then. Raises CannotStart once the attempt is stopped."""
            if self._is_stopped():
                raise _stopped(subject, Reason.RESUME_FAILED)
            if time.monotonic() >= self._report_at:
                self._report(fetch.model_copy(update={"done_bytes": done_bytes}))
                self._report_at = time.monotonic() + REPORT_EVERY_S

        self._fetch(subject, lambda: self._client.download(source, target, on_progress), Reason.RESUME_FAILED)
        self._report(fetch.model_copy(update={"done_bytes": source.size_bytes, "is_verified": True}))

    def fetch_code(self, sha256: str, target: Path) -> None:
        """Download the archive of a code snapshot. Raises CannotStart."""
        subject = f"the code (snapshot {sha256[:12]})"
        self._fetch(subject, lambda: self._client.download_snapshot(sha256, target), Reason.LAUNCH_FAILED)

    def _fetch(self, subject: str, download: Callable[[], None], reason: Reason) -> None:
        pause_s, has_mismatched = FIRST_PAUSE_S, False
        while not self._is_stopped():
            try:
                download()
                return
            except ChecksumMismatch as error:  # it was deleted: what comes now is read from the start
                if has_mismatched:
                    text = f"{subject[0].upper()}{subject[1:]} arrived wrong twice: {error}"
                    raise CannotStart(reason, text) from error
                has_mismatched = True
                log.warning("attempt %s: %s is fetched again: %s", self._label, subject, error)
            except ServerAway as error:
                log.info("attempt %s: %s is still being fetched: %s", self._label, subject, error)
            except RequestRefused as error:
                text = f"{subject[0].upper()}{subject[1:]} could not be fetched: {error}"
                raise CannotStart(reason, text) from error
            time.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        raise _stopped(subject, reason)


def _stopped(subject: str, reason: Reason) -> CannotStart:
    return CannotStart(reason, f"It was stopped while {subject} was being fetched.")
