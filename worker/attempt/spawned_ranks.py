"""The ranks that a script starts by itself, found by the records of the probe in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from worker.node.attempt_files import POINTS_FILE

_HEAD_BYTES = 64 * 1024


def recorded_ranks(folder: Path) -> dict[int, int]:
    """Return rank -> pid of the processes that made a step or joined a process group, below the attempt's `folder`."""
    ranks = {}
    for path in sorted((folder / "probe").glob("*.jsonl"), key=_changed_at):
        with suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
            line = json.loads(file.read(_HEAD_BYTES).splitlines()[0])
            ranks[int(line["rank"])] = int(line["pid"])
    return ranks


def has_output(folder: Path, env: Mapping[str, str]) -> bool:
    """Whether the script reported figures; without the probe, which would see its ranks, whether it wrote anything."""
    if (folder / POINTS_FILE).exists():
        return True
    logs = [folder / "logs" / f"rank0.{stream}" for stream in ("out", "err")]
    return "RANKZERO_PROBE_DIR" not in env and any(_size(log) > 0 for log in logs)


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
