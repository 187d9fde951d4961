"""What a mirror has copied into W&B while a run trained: a file that says which points are in which rows.

W&B numbers rows and says how many it has, but not what is in them, and points of one step come at different times. So
each batch of points is written down before its rows are logged; after a kill the same rows are made of it again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cli.mirrors.copying import Curves
from cli.mirrors.wandb_rows import Row, rows_of
from cli.terminal.errors import CommandFailed

Counts = dict[str, int]
"""Series -> number of its points."""


class Batch(NamedTuple):
    """The points of an attempt that were copied together: those up to these numbers, without the earlier batches'."""

    attempt: int
    until: Counts


class Journal:
    """The batches of one copy, oldest first; one program at a time holds it."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises CommandFailed where another program has it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise CommandFailed(f"Another command mirrors this run already; it holds {path}.") from None
        self._have: dict[int, Counts] = {}

    def close(self) -> None:
        """Let others have the file."""
        self._file.close()

    def rows(self, curves: Callable[[int], Curves]) -> Iterator[Row]:
        """Yield the rows of all batches again, from the points of each attempt."""
        self._have, logged = {}, dict[int, Curves]()
        for batch in self._batches():
            if batch.attempt not in logged:
                logged[batch.attempt] = curves(batch.attempt)
            yield from self._rows(batch, logged[batch.attempt])

    def add(self, attempt: int, logged: Curves) -> list[Row]:
        """Write down the points that no batch has, on the disk, and return their rows."""
        have = self._have.get(attempt, {})
        until = {name: len(points) for name, points in logged.items() if len(points) > have.get(name, 0)}
        if not until:
            return []
        self._file.write(json.dumps([attempt, until]).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._rows(Batch(attempt, until), logged)

    def _rows(self, batch: Batch, logged: Curves) -> list[Row]:
        have = self._have.setdefault(batch.attempt, {})
        new = {name: logged[name][have.get(name, 0) : count] for name, count in batch.until.items()}
        have.update(batch.until)
        return list(rows_of(new))

    def _batches(self) -> list[Batch]:
        """Read the file; a last line that was cut off was logged nowhere, and goes."""
        self._file.seek(0)
        whole = self._file.read()
        whole = whole[: whole.rfind(b"\n") + 1]
        self._file.truncate(len(whole))
        return [Batch(*json.loads(line)) for line in whole.splitlines()]
