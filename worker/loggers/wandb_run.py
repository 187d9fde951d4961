"""A run of W&B as its records tell it: the points of its rows, its settings and its end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from domain.text.json_values import parse_json

NO_END = "W&B's file has no end: the script was killed, or it still runs."
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Numbers that JSON has only as text."""


class WandbRun:
    """All of a run but its points."""

    def __init__(self) -> None:
        self.name, self.run_id, self.project, self.started_at = "", "", "", 0.0
        self._tags = list[str]()
        self._logged: set[str] = set()
        self._config: dict[str, Any] = {}
        self._summary: dict[str, Any] = {}
        self._exit_code: int | None = None

    def read(self, record: Any) -> None:
        """Take what a record says; later ones replace earlier ones."""
        if record.HasField("run"):
            run = record.run
            self.name, self.run_id, self.project = run.display_name or run.run_id, run.run_id, run.project
            self._tags = list(run.tags)
            self.started_at = self.started_at or run.start_time.seconds + run.start_time.nanos / 1e9
            _update(self._config, run.config.update)
        _update(self._config, record.config.update)
        _update(self._summary, record.summary.update)
        self._logged.update(_name(item) for item in record.history.item)
        if record.HasField("exit"):
            self._exit_code = record.exit.exit_code

    def begin_part(self) -> None:
        """Go on with the file of a process that resumed the run: its end counts, not the one before."""
        self._exit_code = None

    @property
    def end(self) -> tuple[Literal["succeeded", "failed"], str | None]:
        """The state and how it ended."""
        if self._exit_code == 0:
            return "succeeded", None
        ended = None if self._exit_code is None else f"The script ended with exit code {self._exit_code}."
        return "failed", ended or NO_END

    @property
    def settings(self) -> dict[str, Any]:
        """Hyperparameters, tags, project, and what the script itself added to the summary."""
        own = {
            name: value
            for name, value in self._summary.items()
            if name not in self._logged and not isinstance(value, dict)
        }
        settings = {"config": self._config, "tags": self._tags, "project": self.project, "summary": own}
        return {name: value for name, value in settings.items() if value}


def _update(values: dict[str, Any], items: Any) -> None:
    for item in items:
        name = _name(item)
        if not name.startswith("_"):
            with suppress(ValueError):
                values[name] = parse_json(item.value_json)


class FoundPoint(NamedTuple):
    """A value in a series."""

    name: str
    step: int
    value: float
    wall: float
    """Seconds since the epoch."""


class WandbRows:
    """Reads points from the records of one run, in their order: an x-axis may be defined by an earlier one."""

    def __init__(self, wall: float) -> None:
        """`wall` is the time of rows that have none, in seconds since the epoch."""
        self._axes, self._wall = _Axes(), wall

    def points(self, record: Any) -> Iterator[FoundPoint]:
        """Yield the numbers of a row, on the x-axis that `define_metric` chose."""
        if record.HasField("metric"):
            self._axes.define(record.metric)
        if record.HasField("history"):
            row = _row(record.history)
            self._wall = row.pop("_timestamp", self._wall)
            own = row.pop("_step", math.nan)
            step = int(own) if math.isfinite(own) else record.history.step.num
            for name, x in self._axes.steps(row, step).items():
                yield FoundPoint(name, x, row[name], self._wall)


def _row(history: Any) -> dict[str, float]:
    numbers = {_name(item): _number(item) for item in history.item}
    return {name: value for name, value in numbers.items() if value is not None and name != "_runtime"}


def _name(item: Any) -> str:
    return ".".join(item.nested_key) or str(item.key)


def _number(item: Any) -> float | None:
    for field in ("number", "integer", "boolean"):
        if item.HasField(field):
            return float(getattr(item, field))
    try:
        value = parse_json(item.value_json)
    except ValueError:
        return None
    is_number = isinstance(value, int | float) or (isinstance(value, str) and value in NOT_FINITE)
    return float(value) if is_number else None


class _Axes:
    """The x-axes of `define_metric`: where an axis is not a whole number, the row's own step counts."""

    def __init__(self) -> None:
        self._axes: dict[str, str] = {}
        self._latest: dict[str, float] = {}
        self._fractional: set[str] = set()

    def define(self, metric: Any) -> None:
        """Set the x-axis of a metric, or of all that begin with a prefix."""
        self._axes[metric.name or metric.glob_name] = metric.step_metric

    def steps(self, row: dict[str, float], step: int) -> dict[str, int]:
        """Return the step of each value of a row."""
        self._latest |= row
        return {name: self._step_of(name, step) for name in row}

    def _step_of(self, name: str, step: int) -> int:
        axis = self._axis_of(name)
        x = self._latest.get(axis) if axis != name and axis not in self._fractional else None
        if x is not None and not x.is_integer():
            self._fractional.add(axis)
        return int(x) if x is not None and x.is_integer() else step

    def _axis_of(self, name: str) -> str:
        if name in self._axes:
            return self._axes[name]
        prefixes = [key for key in self._axes if key.endswith("*") and name.startswith(key[:-1])]
        return self._axes[max(prefixes, key=len)] if prefixes else ""
