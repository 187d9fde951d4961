"""When people were last here, and tokens last used: written down at most once a minute for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

WRITTEN_EVERY_S = 60.0


class LastUses:
    """The uses that are not in the store yet; safe to use from any thread."""

    def __init__(self, write: Callable[[Mapping[str, float]], None], now: Callable[[], float]) -> None:
        self._write, self._now = write, now
        self._at: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, name: str) -> None:
        """Note that it is used now."""
        with self._lock:
            self._at[name] = self._now()

    def write_down(self, at_once: bool = False) -> None:
        """Write down what is due, or all `at_once`. Raises what writing raises; the next call tries again."""
        now = self._now()
        with self._lock:
            self._written = {name: at for name, at in self._written.items() if now - at < WRITTEN_EVERY_S}
            due = {name: at for name, at in self._at.items() if at_once or name not in self._written}
        if due:
            self._write(due)
        with self._lock:
            self._written |= dict.fromkeys(due, now)
            self._at = {name: at for name, at in self._at.items() if due.get(name) != at}
