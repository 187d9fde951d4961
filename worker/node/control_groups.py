"""Reads the control groups around this process: out-of-memory kills, the memory limit and what is free of it.

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

_LIMITS = (
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""(file with the limit, file with the usage, prefix in memory.stat) of versions 2 and 1."""


def out_of_memory_kills(proc: Path = Path("/proc")) -> int | None:
    """The number of kills so far, useful only as a difference between two readings; None if it is unavailable."""
    for folder in _groups(proc):
        for name in ("memory.events", "memory.oom_control"):
            if (kills := _number(folder / name, r"^oom_kill (\d+)$")) is not None:
                return kills
    return _number(proc / "vmstat", r"^oom_kill (\d+)$")


def memory_limit_bytes(proc: Path = Path("/proc")) -> int | None:
    """The lowest memory limit of the control groups in bytes; None without one."""
    limits = []
    for folder in _groups(proc):
        for parent in (folder, *folder.parents):
            for name, _, _ in _LIMITS:
                if (limit := _number(parent / name, r"^(\d+)$")) is not None and limit < NO_LIMIT_BYTES:
                    limits.append(limit)
    return min(limits, default=None)


def free_memory_bytes(proc: Path = Path("/proc")) -> int | None:
    """Bytes that the control groups still allow, counting the page cache as free; None without a limit."""
    free = []
    for folder in _groups(proc):
        for parent in (folder, *folder.parents):
            for limit_name, used_name, prefix in _LIMITS:
                limit = _number(parent / limit_name, r"^(\d+)$")
                used = _number(parent / used_name, r"^(\d+)$")
                if limit is not None and used is not None and limit < NO_LIMIT_BYTES:
                    free.append(limit - used + _page_cache_bytes(parent, prefix))
    return max(0, min(free)) if free else None


def _page_cache_bytes(folder: Path, prefix: str) -> int:
    names = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(_number(folder / "memory.stat", rf"^{name} (\d+)$") or 0 for name in names)


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
