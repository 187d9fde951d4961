"""Runs that are being viewed, as JSON text made once for all viewers."""

from __future__ import annotations

from collections.abc import Callable

from db.people.visibility import Visibility, visibility

LIVE_RUN_AGE_S = 0.9
FORGOTTEN_AFTER_S = 60.0


class LiveRuns:
    """The texts that were made last, one for all who see the same projects; safe to use from any thread."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Visibility], tuple[float, str]] = {}
        self._changes = 0

    def text(self, run_id: str, now: float, read: Callable[[], str]) -> str:
        """A run's text, at most LIVE_RUN_AGE_S old and no older than its last change; `read` makes a new one.

        Raises what `read` raises."""
        if (recent_text := self.kept(run_id, now)) is not None:
            return recent_text
        changes = self._changes
        text = read()
        if changes == self._changes:  # otherwise the run changed while it was read: do not keep this
            self._texts = {key: entry for key, entry in self._texts.items() if now - entry[0] < FORGOTTEN_AFTER_S}
            self._texts[run_id, visibility()] = (now, text)
        return text

    def kept(self, run_id: str, now: float) -> str | None:
        """A run's text where it need not be read; returns at once."""
        read_at, text = self._texts.get((run_id, visibility()), (float("-inf"), ""))
        return text if now - read_at < LIVE_RUN_AGE_S else None

    def forget(self, run_id: str) -> None:
        """Note that a run has changed."""
        self._changes += 1
        self._texts = {key: entry for key, entry in self._texts.items() if key[0] != run_id}
