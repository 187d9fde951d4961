"""W&B's `.wandb` files, of runs that were offline or online; read without the package and without a key."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cli.importers.past_run import NOT_FINITE, PastRun, PointsBySeries, digest_of_files
from domain.messages import Point
from worker.node.run_files import walk_files
from worker.streams.wandb_records import records

ROWS = 1000
"""Rows whose points are yielded together."""
NO_END = "W&B's file has no end: the script was killed, or it still runs."


def past_runs(root: Path) -> Iterator[PastRun]:
    """Yield a run for each `.wandb` file below `root`."""
    entries = [] if root.is_file() else walk_files(root, _is_wandb_file)
    for file in sorted([root] if root.is_file() else [Path(entry.path) for entry in entries]):
        if _is_wandb_file(file.name):
            yield _past_run(file)


def _is_wandb_file(name: str) -> bool:
    return name.endswith(".wandb")


def _past_run(file: Path) -> PastRun:
    run = _Run()
    for record in records(file):
        run.read(record)
    state, message = run.end
    return PastRun(
        name=run.name or file.stem,
        source=file,
        content=digest_of_files([file]),
        started_at=run.started_at or file.stat().st_mtime,
        points=partial(_points, file),
        state=state,
        message=message,
        settings=run.settings,
    )


class _Run:
    """All of a run but its points."""

    def __init__(self) -> None:
        self.name, self.started_at = "", 0.0
        self._project, self._tags = "", list[str]()
        self._logged: set[str] = set()
        self._config: dict[str, Any] = {}
        self._summary: dict[str, Any] = {}
        self._exit_code: int | None = None

    def read(self, record: Any) -> None:
        """Take what a record says; later ones replace earlier ones."""
        if record.HasField("run"):
            run = record.run
            self.name, self._project = run.display_name or run.run_id, run.project
            self._tags = list(run.tags)
            self.started_at = run.start_time.seconds + run.start_time.nanos / 1e9
            _update(self._config, run.config.update)
        _update(self._config, record.config.update)
        _update(self._summary, record.summary.update)
        self._logged.update(_name(item) for item in record.history.item)
        if record.HasField("exit"):
            self._exit_code = record.exit.exit_code

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
        settings = {"config": self._config, "tags": self._tags, "project": self._project, "summary": own}
        return {name: value for name, value in settings.items() if value}


def _update(values: dict[str, Any], items: Any) -> None:
    for item in items:
        name = _name(item)
        if not name.startswith("_"):
            with suppress(ValueError):
                values[name] = json.loads(item.value_json)


def _points(file: Path) -> Iterator[PointsBySeries]:
    """Yield the numbers of all rows, on the x-axis that `define_metric` chose."""
    axes, batch, wall = _Axes(), defaultdict[str, list[Point]](list), file.stat().st_mtime
    for number, record in enumerate(records(file)):
        if record.HasField("metric"):
            axes.define(record.metric)
        if record.HasField("history"):
            row = _row(record.history)
            wall = row.pop("_timestamp", wall)
            step = int(row.pop("_step", record.history.step.num))
            for name, x in axes.steps(row, step).items():
                batch[name].append((x, row[name], wall))
        if number % ROWS == ROWS - 1:
            yield batch
            batch = defaultdict(list)
    yield batch


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
        value = json.loads(item.value_json)
    except ValueError:
        return None
    return float(value) if isinstance(value, int | float) or value in NOT_FINITE else None


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
