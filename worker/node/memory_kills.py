"""How often the kernel has killed for memory around this process, and how much memory it allows.

Reads control groups of version 2 (`memory.events`) and 1 (`memory.oom_control`), and the whole machine's
counter where there are none. Imports only the standard library: the supervisor uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes a number near 2^63 where nothing is limited."""


def count(proc: Path = Path("/proc")) -> int | None:
    """Kills so far; only the difference of two readings means anything. None where the kernel does not tell."""
    for folder in _groups(proc):
        for name in ("memory.events", "memory.oom_control"):
            if (found := _number(folder / name, r"^oom_kill (\d+)$")) is not None:
                return found
    return _number(proc / "vmstat", r"^oom_kill (\d+)$")


def limit_bytes(proc: Path = Path("/proc")) -> int | None:
    """The tightest limit that the control groups set; None where there is none."""
    limits = []
    for folder in _groups(proc):
        for parent in (folder, *folder.parents):
            for name in ("memory.max", "memory.limit_in_bytes"):
                if (found := _number(parent / name, r"^(\d+)$")) is not None and found < NO_LIMIT_BYTES:
                    limits.append(found)
    return min(limits, default=None)


def _groups(proc: Path) -> Iterator[Path]:
    """Where the memory of this process is accounted: its own group, or the root a container sees."""
    mounts = list(_mounts(proc))
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for version, folder in mounts:
                wanted = "cgroup" if "memory" in controllers.split(",") else "cgroup2"
                if version == wanted and (controllers == "" or wanted == "cgroup"):
                    yield from (folder / path.lstrip("/"), folder)


def _mounts(proc: Path) -> Iterator[tuple[str, Path]]:
    """(cgroup2 or cgroup, folder) of what may hold memory counters."""
    with suppress(OSError):
        for line in (proc / "self" / "mounts").read_text().splitlines():
            _, folder, kind, options = line.split(" ")[:4]
            if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
                yield kind, Path(folder)


def _number(path: Path, pattern: str) -> int | None:
    with suppress(OSError, UnicodeDecodeError):
        if found := re.search(pattern, path.read_text(), re.MULTILINE):
            return int(found[1])
    return None
