"""A sweep in a script."""

from __future__ import annotations

from rankzero.records import Record


class Sweep(Record):
    """A sweep; its fields are attributes: `sweep.trials`, `sweep.best`, `sweep.message`, …"""

    def __repr__(self) -> str:
        return f"Sweep({self.id!r}, {self.state!r})"

    def stop(self) -> Sweep:
        """Ask it to end, with its live trials. Raises RankzeroError."""
        self._fields = dict(self._connection.post(self._path("stop")))
        return self

    def _path(self, *segments: str) -> str:
        return "/".join(["/api/sweeps", self.id, *segments])
