"""CPU and memory of each rank's processes, and what its probe recorded last: its step and device memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from domain.text.json_values import parse_json
from worker.hardware.readings import Counters, Readings
from worker.node import processes

TAIL_BYTES = 16 * 1024
"""The last complete line of a probe's file lies within these."""
DEVICE_MEMORY = ("device_memory_bytes", "device_memory_total_bytes")
"""Fields of a probe's line: what tensors use at the end of a step, and what the device has."""


@dataclass(frozen=True)
class ProcessUsage:
    """CPU seconds of a process, its resident bytes, and those of them that no file backs and nobody shares."""

    cpu_s: float
    resident_bytes: float
    private_bytes: float


class RankProcesses:
    """Reads what the ranks of all attempts on this node use, each with the processes it has started."""

    def __init__(self) -> None:
        self._rates = Counters()

    def read(self, at: float, ranks: Mapping[str, int], gpu_memory_of: Mapping[int, float]) -> Readings:
        """Return the readings of `rank -> process id`; a data loader's processes count as their rank's."""
        readings = Readings()
        for rank, pid in ranks.items():
            members = [pid, *_descendants(pid)]
            usages = {member: usage for member in members if (usage := _usage(member)) is not None}
            if not usages:
                continue
            used = usages.values()
            readings.add(f"rank{rank}/memory_used_bytes", sum(usage.resident_bytes for usage in used))
            _add_private(readings, rank, pid, usages)
            readings.add(f"rank{rank}/processes", len(used))
            counter = {f"rank{rank}/cpu_percent {pid}": 100 * sum(usage.cpu_s for usage in used)}
            for name, rate in self._rates.rates(at, counter).items():
                readings.add(name.partition(" ")[0], rate)
            held = [gpu_memory_of[member] for member in members if member in gpu_memory_of]
            readings.add(f"rank{rank}/gpu_memory_used_bytes", sum(held) if held else None)
        return readings


def _add_private(readings: Readings, rank: str, pid: int, usages: Mapping[int, ProcessUsage]) -> None:
    """Add memory that belongs to the process alone: files that it maps are the page cache's."""
    own = usages.get(pid)
    readings.add(f"rank{rank}/own_memory_bytes", own.private_bytes if own else None)
    workers = [usage.private_bytes for member, usage in usages.items() if member != pid]
    readings.add(f"rank{rank}/workers_memory_bytes", sum(workers) if workers else None)


def last_records(folder: Path, ranks: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return rank -> the last line that its probe recorded, of `rank -> process id`."""
    return {rank: line for rank, pid in ranks.items() for line in _last_line(folder / f"{pid}.jsonl")}


def recorded(records: Mapping[str, Mapping[str, Any]]) -> tuple[int, Readings]:
    """Return the highest step of the ranks, 0 without any, and the memory of their devices."""
    readings = Readings()
    for rank, record in records.items():
        for name in DEVICE_MEMORY:
            if isinstance(record.get(name), int):
                readings.add(f"rank{rank}/{name}", record[name])
    return max((int(record.get("step", 0)) for record in records.values()), default=0), readings


def _last_line(path: Path) -> Iterator[dict[str, Any]]:
    with suppress(OSError, ValueError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        complete = file.read().rpartition(b"\n")[0]
        line = parse_json(complete.rpartition(b"\n")[2])
        if isinstance(line, dict) and isinstance(line.get("step", 0), int):
            yield line


def _descendants(pid: int) -> list[int]:
    children = processes.children(pid)
    return children + [descendant for child in children for descendant in _descendants(child)]


def _usage(pid: int) -> ProcessUsage | None:
    """Return the CPU time and memory of a process; None if it has ended, also as a zombie."""
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        times, memory = process.cpu_times(), process.memory_info()
        private = memory.rss - getattr(memory, "shared", 0)
        return ProcessUsage(times.user + times.system, memory.rss, private) if memory.rss else None
    return None
