"""A run in a script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from domain.clients import downloads
from domain.clients.answers import Document
from domain.clock import SYSTEM_CLOCK
from domain.waiting import ENDED, answers
from rankzero.errors import Away, NeverReached, Refused, TimedOut
from rankzero.metrics import Metrics
from rankzero.records import Record


class Run(Record):
    """A run; its fields are attributes: `run.state`, `run.step`, `run.last_loss`, `run.tags`, …"""

    def __repr__(self) -> str:
        return f"Run({self.id!r}, {self.name!r}, {self.state!r}, step={self._fields.get('step')})"

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._fields["name"])

    def metrics(
        self,
        name: str | list[str] | None = None,
        since: int | None = None,
        until: int | None = None,
        source: str = "events",
        max_points: int | None = None,
    ) -> Metrics:
        """Return its series by name, every point between two steps unless `max_points` thins them.

        Raises RankzeroError."""
        choice = {"name": name, "since": since, "until": until, "source": source, "max_points": max_points}
        return Metrics.of(self._connection.get(self._path("metrics"), **choice))

    def logs(self, rank: int | str = 0, stream: Literal["out", "err"] = "out", attempt: int | None = None) -> str:
        """Return what a rank, or the `launcher`, printed. Raises RankzeroError."""
        choice = {"rank": rank, "stream": stream, "attempt": attempt}
        return self._connection.read(self._path("logs"), **choice).decode(errors="replace")

    def checkpoints(self) -> list[Document]:
        """Return its checkpoints, newest first. Raises RankzeroError."""
        return list(self._connection.get(self._path("checkpoints")))

    def findings(self) -> list[Document]:
        """Return what was noticed while it trained: evidence, meaning and fix. Raises RankzeroError."""
        return list(self._connection.get(self._path("findings")))

    def download(self, path: str | Path | None = None, name: str | None = None) -> Path:
        """Download a checkpoint, by default the latest complete one, and return its file; the SHA-256 is verified.

        An interrupted download continues. `path`: a file or folder, by default the current one.

        Raises RankzeroError."""
        try:
            checkpoint = downloads.choose(self.checkpoints(), self.id, name)
            target = downloads.target_path(checkpoint["name"], None if path is None else Path(path))
            if not downloads.is_there(target, checkpoint, overwrite=path is not None):
                downloads.CheckpointDownload(self._connection, checkpoint, target, Away, SYSTEM_CLOCK).run()
        except (downloads.DownloadFailed, NotADirectoryError) as error:
            raise Refused(str(error)) from None
        return target

    def wait(self, until: str = ENDED, timeout: float | None = None) -> Run:
        """Return once the condition holds: `ended`, `finding`, `running`, or such as `val/loss < 0.2 or step >= 1000`.

        It waits while the dashboard is away. `timeout`: seconds.

        Raises TimedOut, NeverReached where the run ended before, and RankzeroError."""
        *_, last = answers(lambda wait_s, since: self._ask_news(until, wait_s, since), timeout, SYSTEM_CLOCK, Away)
        self.refresh()
        if not last["is_met"] and last["reached"] == ENDED:
            raise NeverReached(f"Run {self.id} has ended, and {until!r} never came.")
        if not last["is_met"]:
            raise TimedOut(f"{until!r} has not come within {timeout:g} s; run {self.id} continues.")
        return self

    def stop(self, reason: str | None = None) -> Run:
        """Ask it to end: SIGTERM, and after its grace period SIGKILL. Raises RankzeroError."""
        self._fields = dict(self._connection.post(self._path("stop"), {"reason": reason}))
        return self

    def resume(self, checkpoint: str | None = None) -> Run:
        """Open another attempt from a checkpoint, by default the latest complete one. Raises RankzeroError."""
        self._fields = dict(self._connection.post(self._path("resume"), {"checkpoint": checkpoint}))
        return self

    def _ask_news(self, until: str, wait_s: float, since: str) -> Mapping[str, Any]:
        news: Mapping[str, Any] = self._connection.get(
            self._path("wait"), until=until, timeout=wait_s, since=since or None
        )
        return news

    def _path(self, *segments: str) -> str:
        return "/".join(["/api/runs", self.id, *segments])
