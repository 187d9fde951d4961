"""ClearML: scalars that the script reports, and the parameters that it connects to its task."""

from __future__ import annotations

from typing import Any

from . import records, values

NAME = "clearml"
SINGLE_VALUE = -(2**31)
"""The iteration of values that have none."""


def hook_into_loggers(module: Any) -> None:
    """Observe scalars."""
    records.observe(module.Logger, "report_scalar", _reported)


def hook_into_tasks(module: Any) -> None:
    """Observe parameters and tags."""
    records.observe(module.Task, "connect", _connected)
    records.observe(module.Task, "add_tags", _tagged)


def _reported(result: Any, logger: Any, title: str, series: str, value: Any, iteration: int) -> None:
    if iteration != SINGLE_VALUE and (number := values.number(value)) is not None:
        tag = title if title == series else f"{title}/{series}"
        records.write_points(NAME, int(iteration), {tag: number})


def _connected(result: Any, task: Any, mutable: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(mutable, dict):
        records.write_settings(NAME, config=values.plain(mutable))


def _tagged(result: Any, task: Any, tags: Any) -> None:
    records.write_settings(NAME, tags=values.plain([tags] if isinstance(tags, str) else list(tags)))


HOOK_INTO = {"clearml.logger": hook_into_loggers, "clearml.task": hook_into_tasks}
