"""Counts the kernel's out-of-memory kills around this process, and reads its memory limit.

Reads control groups of version 2 (`memory.events`) and 1 (`memory.oom_control`), and the whole machine's
counter where there are none. Imports only the standard library: the supervisor uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes a number near 2^63 where there is no limit."""


def count(proc: Path = Path("/proc")) -> int | None:
    """The number of kills so far, useful only as a difference between two readings; None if it is unavailable."""
    for folder in _groups(proc):
        for name in ("memory.events", "memory.oom_control"):
            if (kills := _number(folder / name, r"^oom_kill (\d+)$")) is not None:
                return kills
    return _number(proc / "vmstat", r"^oom_kill (\d+)$")


def limit_bytes(proc: Path = Path("/proc")) -> int | None:
    """The lowest memory limit of the control groups in bytes; None without one."""
    limits = []
    for folder in _groups(proc):
        for parent in (folder, *folder.parents):
            for name in ("memory.max", "memory.limit_in_bytes"):
                if (limit := _number(parent / name, r"^(\d+)$")) is not None and limit < NO_LIMIT_BYTES:
                    limits.append(limit)
    return min(limits, default=None)


def _groups(proc: Path) -> Iterator[Path]:
    """Yield the control groups that account for this process: its own, then the root a container sees."""
    mounts = list(_mounts(proc))
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for version, folder in mounts:
                required_version = "cgroup" if "memory" in controllers.split(",") else "cgroup2"
                if version == required_version and (controllers == "" or required_version == "cgroup"):
                    yield from (folder / path.lstrip("/"), folder)


def _mounts(proc: Path) -> Iterator[tuple[str, Path]]:
    """Yield (cgroup2 or cgroup, folder) for each mount that may hold memory counters."""
    with suppress(OSError):
        for line in (proc / "self" / "mounts").read_text().splitlines():
            _, folder, kind, options = line.split(" ")[:4]
            if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
                yield kind, Path(folder)


def _number(path: Path, pattern: str) -> int | None:
    with suppress(OSError, UnicodeDecodeError):
        if match := re.search(pattern, path.read_text(), re.MULTILINE):
            return int(match[1])
    return None
