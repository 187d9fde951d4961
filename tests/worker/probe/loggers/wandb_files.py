"""The curves in a `.wandb` file, read with the package's own records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK_BYTES = 32 * 1024
HEADER = struct.Struct("<IHB")
"""Checksum, length, and whether the chunk is a whole record, its first, middle or last part."""
IDENT_BYTES, WHOLE, LAST = 7, 1, 4
OWN = ("_step", "_timestamp", "_runtime")

Curve = list[tuple[int, float]]


def records(path: Path) -> Iterator[Any]:
    """Yield the protobuf records of the file, in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, buffer = path.read_bytes(), IDENT_BYTES, b""
    while position + HEADER.size <= len(data):
        if (left := BLOCK_BYTES - position % BLOCK_BYTES) < HEADER.size:
            position += left
            continue
        _, length, kind = HEADER.unpack_from(data, position)
        position += HEADER.size
        buffer += data[position : position + length]
        position += length
        if kind in (WHOLE, LAST):
            record = Record()
            record.ParseFromString(buffer)
            yield record
            buffer = b""


def curves(path: Path) -> dict[str, Curve]:
    """Name -> [(x, value)]: x is the latest value of the metric that `define_metric` chose, if whole, else the step."""
    axes: dict[str, str] = {}
    latest: dict[str, float] = {}
    by_name: dict[str, Curve] = {}
    for record in records(path):
        if record.HasField("metric"):
            metric = record.metric
            axes[metric.name or metric.glob_name] = metric.step_metric
        if record.HasField("history"):
            row = {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            numbers = {name: value for name, value in row.items() if name not in OWN and _is_number(value)}
            latest |= numbers
            for name, value in numbers.items():
                axis = axes.get(name) or _prefix_axis(axes, name)
                x = latest.get(axis) if axis != name else None
                step = row["_step"] if x is None or not float(x).is_integer() else x
                by_name.setdefault(name, []).append((int(step), float(value)))
    return by_name


def config(path: Path) -> dict[str, Any]:
    """The configuration after all its updates."""
    merged: dict[str, Any] = {}
    for record in records(path):
        updates = record.run.config.update if record.HasField("run") else record.config.update
        for item in updates:
            if item.key and item.key != "_wandb":
                merged[item.key] = json.loads(item.value_json)
    return merged


def _prefix_axis(axes: dict[str, str], name: str) -> str:
    return next((axis for key, axis in axes.items() if key[-1] == "*" and name.startswith(key[:-1])), "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")
