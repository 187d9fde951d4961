"""trackio: rows of `Run.log`."""

from __future__ import annotations

from typing import Any

from . import records, values

NAME = "trackio"


def hook_into_runs(module: Any) -> None:
    """Observe what a run begins with and logs."""
    records.observe(module.Run, "__init__", _started)
    records.observe(module.Run, "log", _logged)


def _started(result: Any, run: Any, *args: Any, **kwargs: Any) -> None:
    config = {key: value for key, value in dict(run.config or {}).items() if not str(key).startswith("_")}
    records.write_settings(NAME, name=run.name, project=run.project, config=values.plain(config))


def _logged(result: Any, run: Any, metrics: Any, step: int | None = None) -> None:
    row = dict(values.numbers(metrics, "."))
    records.write_points(NAME, run._next_step - 1 if step is None else step, row)


HOOK_INTO = {"trackio.run": hook_into_runs}
