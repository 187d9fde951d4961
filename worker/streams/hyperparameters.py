"""The hyperparameters of `add_hparams`, which are at the beginning of an event file of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from worker.streams.event_messages import Event, Hyperparameters
from worker.streams.events import HEADER, has_header

READ_BYTES = 1024 * 1024
PLUGIN = b"hparams"
EXPERIMENT, SESSION = "_hparams_/experiment", "_hparams_/session_start_info"
"""Tags of what `add_hparams` writes into one file; Keras' callback writes the first one beside its runs."""


def first_events(file: Path) -> list[Any]:
    """Return the whole events at the beginning of a file. Raises OSError."""
    return list(_events(_beginning(file)))


def hparams_events(file: Path) -> list[Any]:
    """Return these events if some have hyperparameters, else none: most files are told apart without being decoded.

    Raises OSError."""
    data = _beginning(file)
    return list(_events(data)) if PLUGIN in data else []


def hyperparameters(events: list[Any]) -> dict[str, Any]:
    """Return the hyperparameters in some events: texts, numbers and truth values."""
    return {name: value for event in events for name, value in _of_event(event)}


def are_of_add_hparams(events: list[Any]) -> bool:
    """Whether `add_hparams` wrote these events."""
    return {EXPERIMENT, SESSION} <= {value.tag for event in events for value in event.summary.value}


def _beginning(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(READ_BYTES)


def _events(data: bytes) -> Iterator[Any]:
    position = 0
    while position + HEADER.size <= len(data) and has_header(data, position):
        begin = position + HEADER.size
        position = begin + HEADER.unpack_from(data, position)[0] + 4
        if position <= len(data):
            try:
                yield Event.FromString(data[begin : position - 4])
            except DecodeError:
                return


def _of_event(event: Any) -> Iterator[tuple[str, Any]]:
    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name == "hparams":
            try:
                plugin = Hyperparameters.FromString(value.metadata.plugin_data.content)
            except DecodeError:
                continue
            for hparam in plugin.session_start_info.hparams:
                for kind in ("number_value", "string_value", "bool_value"):
                    if hparam.value.HasField(kind):
                        yield hparam.key, _as_json(getattr(hparam.value, kind))


def _as_json(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
