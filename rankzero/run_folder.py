"""The folder of a process that watches itself: the files that its companion writes and reads there."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


class RunFolder:
    """The folder, as this process sees it; the companion removes it once everything is sent."""

    def __init__(self, path: Path, run_id: str, rank: int, state: Mapping[str, Any]) -> None:
        """`run_id`: proposed until the server has answered; `state`: as a supervisor of an attempt keeps it."""
        self.path, self._run_id = path, run_id
        self._attempt, self._logs = path / "attempt", f"rank{rank}"
        self._companion: dict[str, Any] = {}
        self._state, self._lock = dict(state), threading.Lock()
        self.is_saved = True
        """Whether the file has the newest state: on a full disk it has not."""

    @property
    def exists(self) -> bool:
        """Whether the companion has not removed it."""
        return self.path.exists()

    @property
    def run_id(self) -> str:
        """The run's id: by the server's answer, once it is there."""
        place = _document(self.path / "registration.json").get("assignment") or {}
        self._run_id = str(place.get("run_id") or self._run_id)
        return self._run_id

    def log(self, suffix: str) -> Path:
        """Return the file of what this process writes to stdout (`out`) or stderr (`err`)."""
        return self._attempt / "logs" / f"{self._logs}.{suffix}"

    def companion(self) -> dict[str, Any]:
        """Return what the companion said last: its state, the run's url, and a message where something is amiss."""
        self._companion = _document(self.path / "companion.json") or self._companion
        return self._companion

    def stop_grace(self) -> float | None:
        """Return the seconds of grace with which a person asks for the end; None while nobody does."""
        with suppress(OSError, ValueError):
            return float((self._attempt / "stop").read_text())
        return None

    def save(self, **changes: Any) -> None:
        """Change and write the state; none that has ended. A full disk leaves the writing to a later call."""
        with self._lock:
            if self._state["state"] != "ended":
                self._state.update(changes)
            draft = self._attempt / ".supervisor.json.tmp"
            self.is_saved = False
            with suppress(OSError):
                draft.write_text(json.dumps(self._state))
                draft.replace(self._attempt / "supervisor.json")
                self.is_saved = True


def _document(file: Path) -> dict[str, Any]:
    """Return the object in a file; an empty one where there is none."""
    with suppress(OSError, ValueError):
        document = json.loads(file.read_bytes())
        return document if isinstance(document, dict) else {}
    return {}
