"""SwanLab: rows of `Run.log`; nested names are joined as SwanLab joins them."""

from __future__ import annotations

from typing import Any

from . import records, values

NAME = "swanlab"


def hook_into_runs(module: Any) -> None:
    """Observe what a run logs."""
    records.observe(module.Run, "log", _logged)


def hook_into_starts(module: Any) -> None:
    """Observe hyperparameters and tags."""
    records.observe(module, "init", _started)


def _logged(result: Any, run: Any, data: Any, step: int | None = None) -> None:
    reached: int = run._ctx._global_step
    records.write_points(NAME, reached if step is None else step, dict(values.numbers(data, "/")))


def _started(run: Any, *args: Any, **kwargs: Any) -> None:
    records.write_settings(
        NAME, config=values.plain(kwargs.get("config") or {}), tags=values.plain(kwargs.get("tags") or [])
    )


HOOK_INTO = {"swanlab.sdk.internal.run": hook_into_runs, "swanlab.sdk.cmd.init": hook_into_starts}
