"""Name the series of loggers that are read from the disk: equal values are one series, others say their logger.

The first to log a name owns it: event files, what the probe saw, or one run of a logger on the disk. Another one's
point is compared with the owner's of the same step; after the first difference its series is `LOGGER:NAME`.
"""

from __future__ import annotations

import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from domain.messages import PointBatch
from worker.loggers.wandb_run import FoundPoint
from worker.node.run_files import is_event_file
from worker.node.state_files import read_object, write_whole

PATIENCE_S = 150.0
"""Seconds for which a point waits for what another file gets later: event files are written every two minutes."""
MAX_STEPS = 4096
"""Steps of a series that others are compared with."""
MAX_POINTS, LEAST_STEPS = 400_000, 32
"""Points remembered of all series together; with many series, fewer steps of each."""
SAVE_EVERY_S = 1.0
CLOSE = 1e-6
"""Relative difference of equal values: event files hold 32 bits."""


class _Owned:
    """The last points of a name's owner."""

    def __init__(self) -> None:
        self.values: OrderedDict[int, float] = OrderedDict()  # forgets its first entry in constant time
        self.reached = -math.inf

    def add(self, step: int, value: float, most: int = MAX_STEPS) -> None:
        """Add a point, keeping `most`; of two at one step the later one counts."""
        self.values[step], self.reached = value, max(self.reached, step)
        while len(self.values) > most:
            self.values.popitem(last=False)

    def is_forgotten(self, step: int) -> bool:
        """Whether the point of a step may have been among those before the ones that are remembered."""
        return not self.values or step < min(self.values)


class SharedNames:
    """The names of one attempt's series on this node, which survive a restart of the worker."""

    def __init__(self, file: Path, has_event_files: Callable[[], bool]) -> None:
        state = read_object(file)
        self._file, self._has_event_files = file, has_event_files
        self._owners: dict[str, str] = dict(state.get("owners", {}))
        self._different: set[str] = set(state.get("different", ()))
        """Names with their logger, once a value differed."""
        self._labels: dict[str, str] = dict(state.get("labels", {}))
        """Run of a logger -> what the names of its own series begin with."""
        self._owned: dict[str, _Owned] = {}
        self._is_unsaved, self._saved_at = False, -math.inf
        self._event_files_until = -math.inf
        """Wall time that event files have reached."""

    def stored(self, batch: PointBatch) -> None:
        """Note points of event files, or of the probe."""
        is_new = bool(batch.series.keys() - self._owners.keys())
        most = min(MAX_STEPS, max(LEAST_STEPS, MAX_POINTS // max(1, len(self._owned))))
        for name, points in batch.series.items():
            if self._owners.setdefault(name, batch.path) == batch.path:
                owned = self._owned.setdefault(name, _Owned())
                for step, value, _ in points:
                    owned.add(step, value, most)
            if is_event_file(batch.path) and points:
                self._event_files_until = max(self._event_files_until, points[-1][2])
        if is_new or self._is_unsaved:
            self._save_in_turn()

    def has_others(self, logger: str) -> bool:
        """Whether a name belongs to event files, the probe or another logger than this one."""
        own = {run for run, label in self._labels.items() if label.partition(" ")[0] == logger}
        return bool(set(self._owners.values()) - own)

    def name_of(self, logger: str, run: str, point: FoundPoint, *, final: bool) -> str | None:
        """The name to store a point under, "" if another file has it; None if that cannot be said yet."""
        own, may_wait = self._own_name(logger, run, point.name), self._may_wait(point, final)
        if point.name not in self._owners:
            if may_wait and self._has_event_files() and self._event_files_until < point.wall:
                return None
            self._owners[point.name] = run
            self._save()
        owned = self._owned.setdefault(point.name, _Owned())
        if self._owners[point.name] == run:
            owned.add(point.step, point.value)
            return point.name
        if own in self._different:
            return own
        if may_wait and point.step > owned.reached:
            return None
        if _is_equal(owned.values.get(point.step), point.value) or owned.is_forgotten(point.step):
            return ""
        self._different.add(own)
        self._save()
        return own

    def _may_wait(self, point: FoundPoint, final: bool) -> bool:
        return not final and time.time() - point.wall < PATIENCE_S

    def _own_name(self, logger: str, run: str, name: str) -> str:
        if run not in self._labels:
            is_first = logger not in self._labels.values()
            self._labels[run] = logger if is_first else f"{logger} {Path(run).stem}"
        return f"{self._labels[run]}:{name}"

    def _save_in_turn(self) -> None:
        """Save at most once in a while: of thousands of new names, each would write the names of all before."""
        self._is_unsaved = time.monotonic() < self._saved_at + SAVE_EVERY_S
        if not self._is_unsaved:
            self._save()
            self._saved_at = time.monotonic()

    def _save(self) -> None:
        state = {
            "owners": self._owners, "different": sorted(self._different), "labels": self._labels,
        }  # fmt: skip
        with suppress(OSError):  # a full disk: decided again after a restart
            write_whole(self._file, json.dumps(state))


def _is_equal(own: float | None, value: float) -> bool:
    if own is None or own == value:
        return own is not None
    return (math.isnan(own) and math.isnan(value)) or math.isclose(own, value, rel_tol=CLOSE)
