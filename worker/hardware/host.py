"""CPU, memory, disk, network and InfiniBand of this node, and what each rank takes of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from domain.text.json_values import parse_json
from worker.hardware.readings import Counters, Readings
from worker.node import control_groups, processes
from worker.node.regular_files import open_regular

SHARED_MEMORY = Path("/dev/shm")
INFINIBAND_WORD_BYTES = 4
"""Unit of the data counters of an InfiniBand port."""
INFINIBAND_FAULTS = ("link_downed", "link_error_recovery", "port_rcv_errors", "symbol_error")


class Host:
    """Reads the node's own figures; a rate is the mean since the previous reading."""

    def __init__(self, data_dir: Path, sysfs: Path = Path("/sys"), proc: Path = Path("/proc")) -> None:
        self._data_dir, self._sysfs, self._proc = data_dir, sysfs, proc
        self._rates, self._faults = Counters(), Counters()

    def read(self, at: float) -> Readings:
        """Return what can be read; `at` is in seconds of a clock that never goes back."""
        readings = Readings()
        with suppress(OSError, psutil.Error):
            memory = psutil.virtual_memory()
            readings.add("memory_used_bytes", memory.total - memory.available)
            limits = (memory.available, control_groups.free_memory_bytes(self._proc))
            readings.add("memory_available_bytes", min(limit for limit in limits if limit is not None))
        with suppress(OSError):
            readings.add("disk_used_bytes", shutil.disk_usage(self._data_dir).used)
        with suppress(OSError):
            shared = shutil.disk_usage(SHARED_MEMORY)
            readings.add("shared_memory_used_bytes", shared.used)
            readings.add("shared_memory_free_bytes", shared.free)
        rates = self._rates.rates(at, dict(self._counters()))
        if (busy := rates.pop("cpu_busy_s", None)) is not None:
            readings.add("cpu_percent", 100 * busy / (psutil.cpu_count() or 1))
        readings.values.update(rates)
        self._add_infiniband_faults(readings)
        return readings

    def _counters(self) -> Iterator[tuple[str, float]]:
        """Yield the counters whose growth per second is a reading."""
        with suppress(OSError, psutil.Error):
            times = psutil.cpu_times()
            yield "cpu_busy_s", times.user + times.system + times.nice + times.irq + times.softirq
        with suppress(OSError, psutil.Error, RuntimeError):
            if (disks := psutil.disk_io_counters()) is not None:
                yield "disk_read_bytes_per_s", disks.read_bytes
                yield "disk_written_bytes_per_s", disks.write_bytes
        with suppress(OSError, psutil.Error):
            cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != "lo"]
            yield "network_received_bytes_per_s", sum(card.bytes_recv for card in cards)
            yield "network_sent_bytes_per_s", sum(card.bytes_sent for card in cards)
        for port, counters in self._infiniband():
            for name, counter in (("received", "port_rcv_data"), ("sent", "port_xmit_data")):
                if (words := _number(counters / counter)) is not None:
                    yield f"{port}/{name}_bytes_per_s", words * INFINIBAND_WORD_BYTES

    def _infiniband(self) -> Iterator[tuple[str, Path]]:
        """Yield (mlx5_0:1, the folder of its counters) of each port."""
        for counters in sorted(self._sysfs.glob("class/infiniband/*/ports/*/counters")):
            port = counters.parent
            yield f"{port.parent.parent.name}:{port.name}", counters

    def _add_infiniband_faults(self, readings: Readings) -> None:
        for port, counters in self._infiniband():
            for fault in INFINIBAND_FAULTS:
                count = _number(counters / fault)
                growth = 0.0 if count is None else self._faults.growth(f"{port}/{fault}", count)
                if growth:
                    readings.events[f"{port}: {fault.replace('_', ' ')}"] = growth


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


# CPU and memory of each rank's processes, and what its probe recorded last: its step and device memory.

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
    with suppress(OSError, ValueError), open_regular(path) as file:
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
