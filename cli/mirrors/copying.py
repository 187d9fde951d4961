"""What every mirror reads of a run, and what it tells about its copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.server.client import ServerClient
from cli.server.options import run_path
from cli.terminal import CommandFailed

Curves = Mapping[str, Sequence[Sequence[Any]]]
"""Series -> [[step, value, wall time in seconds]]; NaN and the infinities are texts."""


class ReceiverAway(CommandFailed):
    """The receiver does not answer as it should now; another try may help."""


@dataclass
class Mirrored:
    """A run and its copy."""

    id: str
    url: str
    """Where the copy is; "" while there is none."""
    points: int
    """Copied now."""
    is_ended: bool


def hyperparameters(server: ServerClient, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return those that the script told its loggers and those of the launch, by their dotted names."""
    params = {name: run[name] for name in ("lr", "global_batch_size", "world_size") if run.get(name) is not None}
    for logger in server.get(run_path(run["id"], "loggers")).values():
        params |= dict(_flat(logger.get("config", {})))
    return params


def curves(server: ServerClient, run_id: str, attempt: int) -> Curves:
    """Return all points that an attempt has logged so far."""
    logged: Curves = server.get(run_path(run_id, "metrics"), source="events", attempt=attempt)
    return logged


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
