"""Reads the control groups around this process: out-of-memory kills, and the limits of memory and of cores.

Reads control groups of version 2 (`memory.events`, `cpu.max`) and 1 (`memory.oom_control`, `cpu.cfs_quota_us`), and
the whole machine's counter where there are none. Imports only the standard library: the supervisor uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes a number near 2^63 where there is no limit."""

_LIMITS = (
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""(file with the limit, file with the usage, prefix in memory.stat) of versions 2 and 1."""


@dataclass(frozen=True)
class CpuQuota:
    """What a control group and all below it may use of the CPUs."""

    cores: float
    used_s: float | None
    """Seconds of all cores together so far; None where the kernel does not tell."""


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


def cpu_quotas(proc: Path = Path("/proc")) -> list[CpuQuota]:
    """The quota of each control group around this process that has one."""
    quotas = []
    for group, accounts in zip(_groups(proc, "cpu"), _groups(proc, "cpuacct"), strict=False):
        for folder, account in zip((group, *group.parents), (accounts, *accounts.parents), strict=False):
            if (cores := quota_cores(_quota_text(folder))) is not None:
                quotas.append(CpuQuota(cores, _cpu_used_s(account)))
    return quotas


def quota_cores(text: str) -> float | None:
    """The cores of a quota and its period in microseconds, `150000 100000`; None for `max`, -1 or another text."""
    match = re.fullmatch(r"([1-9]\d*) ([1-9]\d*)\s*", text)
    return int(match[1]) / int(match[2]) if match else None


def _quota_text(folder: Path) -> str:
    version_1 = (_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return _text(folder / "cpu.max") or " ".join(version_1)


def _cpu_used_s(folder: Path) -> float | None:
    if (used_us := _number(folder / "cpu.stat", r"^usage_usec (\d+)$")) is not None:
        return used_us / 1e6
    used_ns = _number(folder / "cpuacct.usage", r"^(\d+)$")
    return None if used_ns is None else used_ns / 1e9


def _page_cache_bytes(folder: Path, prefix: str) -> int:
    names = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(_number(folder / "memory.stat", rf"^{name} (\d+)$") or 0 for name in names)


def _groups(proc: Path, controller: str = "memory") -> Iterator[Path]:
    """Yield the control groups that account for this process: its own, then the root a container sees."""
    mounts = list(_mounts(proc, controller))
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for version, folder in mounts:
            required_version = "cgroup" if controller in controllers.split(",") else "cgroup2"
            if version == required_version and (controllers == "" or required_version == "cgroup"):
                yield from (folder / path.lstrip("/"), folder)


def _mounts(proc: Path, controller: str) -> Iterator[tuple[str, Path]]:
    """Yield (cgroup2 or cgroup, folder) for each mount that may hold the controller's files."""
    for line in _text(proc / "self" / "mounts").splitlines():
        _, folder, kind, options = line.split(" ")[:4]
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            yield kind, Path(folder)


def _number(path: Path, pattern: str) -> int | None:
    match = re.search(pattern, _text(path), re.MULTILINE)
    return int(match[1]) if match else None


def _text(path: Path) -> str:
    """The content of the file; nothing where it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text()
    return ""
