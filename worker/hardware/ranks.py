"""CPU and memory of each rank's processes, and the step that a node's ranks have reached."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from worker.hardware.readings import Counters, Readings
from worker.node import processes

TAIL_BYTES = 16 * 1024
"""The last complete line of a probe's file lies within these."""


class RankProcesses:
    """Reads what the ranks of all attempts on this node use, each with the processes it has started."""

    def __init__(self) -> None:
        self._rates = Counters()

    def read(self, at: float, ranks: Mapping[str, int], gpu_memory_of: Mapping[int, float]) -> Readings:
        """Return the readings of `rank -> process id`; a data loader's processes count as their rank's."""
        readings = Readings()
        for rank, pid in ranks.items():
            members = [pid, *_descendants(pid)]
            used = [usage for member in members if (usage := _usage(member)) is not None]
            if not used:
                continue
            readings.add(f"rank{rank}/memory_used_bytes", sum(memory for _, memory in used))
            readings.add(f"rank{rank}/processes", len(used))
            counter = {f"rank{rank}/cpu_percent {pid}": 100 * sum(cpu_s for cpu_s, _ in used)}
            for name, rate in self._rates.rates(at, counter).items():
                readings.add(name.partition(" ")[0], rate)
            held = [gpu_memory_of[member] for member in members if member in gpu_memory_of]
            readings.add(f"rank{rank}/gpu_memory_used_bytes", sum(held) if held else None)
        return readings


def latest_step(folder: Path, pids: list[int]) -> int:
    """Return the highest step that the probes of these processes have recorded; 0 without any."""
    return max(
        (int(line.get("step", 0)) for pid in pids for line in _last_line(folder / f"{pid}.jsonl")), default=0
    )


def _last_line(path: Path) -> Iterator[dict[str, Any]]:
    with suppress(OSError, ValueError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        complete = file.read().rpartition(b"\n")[0]
        line = json.loads(complete.rpartition(b"\n")[2])
        if isinstance(line, dict) and isinstance(line.get("step", 0), int):
            yield line


def _descendants(pid: int) -> list[int]:
    found = processes.children(pid)
    return found + [below for child in found for below in _descendants(child)]


def _usage(pid: int) -> tuple[float, float] | None:
    """(CPU seconds, resident bytes) of a process; None if it has ended, also as a zombie."""
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        times = process.cpu_times()
        memory_bytes = float(process.memory_info().rss)
        return (times.user + times.system, memory_bytes) if memory_bytes else None
    return None
