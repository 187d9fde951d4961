"""W&B: rows of `Run.log`, completed as W&B completes them, on the x-axis of `define_metric`."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Mapping
from typing import Any

from . import records, values
from . import wandb_offline as offline

NAME = "wandb"


class _History:
    """The rows of one W&B run."""

    def __init__(self, run: Any) -> None:
        self.step = int(getattr(run, "_starting_step", 0) or 0)
        """The step of the row that is being filled."""
        self._row: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._axes: dict[str, tuple[str, bool]] = {}
        """Name or prefix* -> (the metric that is its x-axis, whether rows without it get its last value)."""
        self._fractional: set[str] = set()
        self.summary: dict[str, Any] = {}
        """Values that the script set itself."""

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        """Add values to the row of a step; a row is complete when a later one begins, or on commit."""
        if step is not None and step < self.step:
            return  # W&B ignores it, too
        if step is not None and step > self.step:
            self.complete()
            self.step = step
        self._row.update(values.numbers(data, "."))
        if commit or (commit is None and step is None):
            self.complete()
            self.step += 1

    def define(self, name: str, step_metric: Any = None, step_sync: bool | None = None) -> None:
        """Set the x-axis of the metrics with this name."""
        axis = getattr(step_metric, "name", step_metric)
        if axis:
            self._axes[name] = (axis, step_sync is not False)

    def complete(self) -> None:
        """Write the row."""
        row, self._row = self._row, {}
        self._last.update(row)
        for axis, is_synced in [self._axis_of(tag) for tag in row]:
            if is_synced and axis in self._last:
                row[axis] = self._last[axis]
        by_step: dict[int, dict[str, float]] = {}
        for tag, value in row.items():
            by_step.setdefault(self._step_of(tag), {})[tag] = value
        for step, points in by_step.items():
            records.write_points(NAME, step, points)

    def _step_of(self, tag: str) -> int:
        """Return the x-axis value of the tag if it is a whole number, else the row's step."""
        axis, _ = self._axis_of(tag)
        value = self._last.get(axis) if axis != tag else None
        if value is None or axis in self._fractional:
            return self.step
        if not value.is_integer():
            self._fractional.add(axis)
            return self.step
        return int(value)

    def _axis_of(self, tag: str) -> tuple[str, bool]:
        """Return the x-axis of the tag, by its own name or else the longest prefix; "" is the row's step."""
        if not self._axes:
            return "", False
        if tag in self._axes:
            return self._axes[tag]
        patterns = [name for name in self._axes if name.endswith("*") and tag.startswith(name[:-1])]
        return self._axes[max(patterns, key=len)] if patterns else ("", False)


_histories: weakref.WeakKeyDictionary[Any, _History] = weakref.WeakKeyDictionary()


def _history(run: Any) -> _History:
    if run not in _histories:
        _histories[run] = _History(run)
    return _histories[run]


def hook_into_runs(module: Any) -> None:
    """Observe what a run logs, defines and is configured with."""
    records.observe(module.Run, "log", _logged)
    records.observe(module.Run, "define_metric", _defined)
    records.observe(module.Run, "_config_callback", _configured)
    records.observe(module.Run, "_summary_update_callback", _summarised)
    records.observe(module.Run, "_finish", _finished)


def hook_into_disabled_runs(module: Any) -> None:
    """Observe the runs of WANDB_MODE=disabled, which have methods of their own."""
    for name, observer in (("log", _logged), ("define_metric", _defined), ("finish", _finished)):
        records.observe(module.NoopRun, name, observer)


def hook_into_starts(module: Any) -> None:
    """Observe what a run starts with, and start it offline where W&B would ask for a key or wait for the network."""
    records.observe(module, "init", _started)
    records.observe(module, "init", _noted)
    records.prepare(module, "init", offline.choose)


def hook_into_logins(module: Any) -> None:
    """Log in offline where W&B would ask for a key."""
    records.prepare(module, "login", offline.choose)


def _logged(result: Any, run: Any, data: Any, *args: Any, **kwargs: Any) -> None:
    _history(run).log(data, *args, **kwargs)


def _defined(
    result: Any,
    run: Any,
    name: str,
    step_metric: Any = None,
    step_sync: bool | None = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    _history(run).define(name, step_metric, step_sync)


def _configured(result: Any, run: Any, *args: Any, **kwargs: Any) -> None:
    _write_config(run)


def _started(run: Any, *args: Any, **kwargs: Any) -> None:
    records.write_settings(
        NAME,
        id=run.id,
        name=run.name,
        project=run.project,
        tags=list(run.tags or ()),
        mode=run.settings.mode,
        offline_because=offline.reason,
    )
    _write_config(run)


@records.in_every_rank
def _noted(run: Any, *args: Any, **kwargs: Any) -> None:
    if run.settings.mode != "disabled":
        records.note_run(NAME, os.path.realpath(run.settings.sync_file))


def _summarised(result: Any, run: Any, record: Any, *args: Any, **kwargs: Any) -> None:
    summary = _history(run).summary
    summary.update({".".join(item.key): values.plain(item.value) for item in record.update})
    records.write_settings(NAME, summary=summary)


def _finished(result: Any, run: Any, *args: Any, **kwargs: Any) -> None:
    _history(run).complete()


def _write_config(run: Any) -> None:
    config = {key: value for key, value in dict(run.config).items() if key != "_wandb"}
    records.write_settings(NAME, config=values.plain(config))


@atexit.register
def complete_all() -> None:
    """Write the rows of runs that were never finished: W&B finishes them at the exit, too."""
    for history in list(_histories.values()):
        records.safely(history.complete)


os.register_at_fork(after_in_child=_histories.clear)

HOOK_INTO = {
    "wandb.sdk.wandb_run": hook_into_runs,
    "wandb.sdk.lib.noop_run": hook_into_disabled_runs,
    "wandb.sdk.wandb_init": hook_into_starts,
    "wandb.sdk.wandb_login": hook_into_logins,
}
