"""What the companion tells the front, and people, of its work: `companion.json` in the command's folder."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from domain.clock import Clock
from worker.node.state_files import read_object, write_whole

PROGRESS_FILE = "companion.json"
TOUCHED_EVERY_S = 30.0
"""So often its time is renewed while a companion lives: on a disk that machines share, locks may not be seen."""
LIVE_WITHIN_S = 120.0


@dataclass(frozen=True)
class Progress:
    """How far a command's data is on its way."""

    state: Literal["", "registered", "away", "refused", "done"] = ""
    """Empty: not known yet. away: the server does not answer, or lets it wait. done: nothing more is sent."""
    url: str = ""
    """The run's page, once there is one."""
    message: str = ""
    """A sentence where something is in the way."""
    sent_bytes: int = 0
    total_bytes: int = 0


class ProgressFile:
    """The file, written atomically whenever something is different, and renewed while the companion lives."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._path, self._clock = folder / PROGRESS_FILE, clock
        self._lock = threading.Lock()
        self._written: Progress | None = None
        self._touched_at = float("-inf")
        self.current = read_progress(folder)

    def tell(self, **changes: object) -> None:
        """Change these fields; a full disk only delays that."""
        with self._lock, suppress(OSError):
            self.current = replace(self.current, **changes)  # type: ignore[arg-type]
            if not self.current.state:
                return
            if self.current != self._written:
                write_whole(self._path, json.dumps(asdict(self.current)))
                self._written = self.current
            elif self._clock.now() - self._touched_at >= TOUCHED_EVERY_S:
                os.utime(self._path)
            else:
                return
            self._touched_at = self._clock.now()


def read_progress(folder: Path) -> Progress:
    """Return what a companion wrote last; nothing of it where it wrote nothing readable."""
    try:
        return Progress(**read_object(folder / PROGRESS_FILE))
    except TypeError:  # of another version
        return Progress()


def was_renewed(folder: Path, wall: float) -> bool:
    """Whether a companion, perhaps on another machine, renewed the file a moment ago."""
    with suppress(OSError):
        return abs(wall - (folder / PROGRESS_FILE).stat().st_mtime) < LIVE_WITHIN_S
    return False
