"""Writers of event files beside other loggers: the names of the first writer's scalars are theirs."""

from __future__ import annotations

from typing import Any

from . import records


def hook_into_writers(module: Any) -> None:
    """Observe the events of all writers of tensorboard or tensorboardX."""
    records.observe(module.EventFileWriter, "__init__", _opened)
    records.observe(module.EventFileWriter, "add_event", _added)


def _opened(result: Any, writer: Any, *args: Any, **kwargs: Any) -> None:
    if not records.names.has_event_files:
        records.names.has_event_files = True
        records.main_folder = str(writer.get_logdir())


def _added(result: Any, writer: Any, event: Any, step: Any = None, *args: Any, **kwargs: Any) -> None:
    """Claim the event's scalars; other kinds of values, and scripts without another logger, cost nothing."""
    if not records.is_needed or str(writer.get_logdir()) != records.main_folder:
        return
    scalars = {
        value.tag: _scalar(value)
        for value in event.summary.value
        if value.WhichOneof("value") in ("simple_value", "tensor")
    }
    records.claim(int(event.step if step is None else step), {k: v for k, v in scalars.items() if v is not None})


def _scalar(value: Any) -> float | None:
    if value.WhichOneof("value") == "simple_value":
        return float(value.simple_value)
    numbers = [*value.tensor.float_val, *value.tensor.double_val]
    return float(numbers[0]) if len(numbers) == 1 else None
