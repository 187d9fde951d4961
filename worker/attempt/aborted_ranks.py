"""Keep what all ranks of a node were doing when gloo or NCCL aborts one of them, before the others are ended."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from worker.probe.rankzero_probe.peers import is_aborted, keep_records


class AbortedRanks:
    """Looks for ranks in the few seconds in which an aborted one waits."""

    def __init__(self, attempt_dir: Path) -> None:
        self._folder = attempt_dir / "probe"
        self._sizes: dict[str, int] = {}
        """Bytes of each stack file at the last look."""

    def look(self) -> None:
        """Keep the records of all ranks if one is being aborted."""
        for path in self._folder.glob("*.stack"):
            with suppress(OSError):
                size = path.stat().st_size
                if size != self._sizes.get(path.stem, 0):
                    self._sizes[path.stem] = size
                    if is_aborted(str(self._folder), path.stem):
                        keep_records(str(self._folder))
