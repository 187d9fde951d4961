"""Watch the memory of the ranks, their loader workers, devices and /dev/shm in the samples of the hardware."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from domain.device_memory import DeviceMemory
from domain.messages import Finding, Point
from domain.performance.memory_growth import (
    DEVICE,
    MOST_NAMED,
    OF_RANKS,
    OWN,
    SHARED,
    WORKERS,
    Growth,
    MemorySample,
    MemorySamples,
    NodeMemory,
    leak_findings,
)
from domain.text.formats import size
from worker.hardware.sampler import HardwareFile
from worker.monitor.silent_mistakes import RankRecord
from worker.node.regular_files import open_regular
from worker.streams.json_lines import READ_BYTES

_OF_RANK = re.compile(r"rank(\d+)/(\w+)")
_WATCHED = {place.series for place in OF_RANKS}


class MemoryWatch:
    """Growth of memory in one attempt on this node. Reads from the beginning, also after a restart of the worker."""

    def __init__(self, folder: Path) -> None:
        self._file = HardwareFile(folder, lambda path, generation: 0)
        self._samples: dict[tuple[str, int], MemorySamples] = {}
        self._latest: dict[str, float] = {}

    def look(self) -> None:
        """Read new samples."""
        for source in self._file.sources(final=False):
            while (batch := source.read(READ_BYTES)) is not None:
                for name, points in batch.series.items():
                    self._latest[name] = points[-1][1]
                    self._add(name, points)

    def findings(self, records: Mapping[int, RankRecord]) -> list[Finding]:
        """Return the leak of memory that will fill, if there is one; `records` are the probe's by rank."""
        latest = self._latest
        shared = self._samples.get((SHARED.series, 0))
        return leak_findings(
            NodeMemory(
                own=self._growths(OWN.series),
                workers=self._growths(WORKERS.series),
                devices=self._growths(DEVICE.series),
                shared=shared.growth() if shared else None,
                free_bytes=latest.get("memory_available_bytes"),
                free_shared_bytes=latest.get("shared_memory_free_bytes"),
                free_device_bytes={
                    rank: free
                    for series, rank in self._samples
                    if series == DEVICE.series and (free := self._free_device_bytes(rank)) is not None
                },
                first_epoch_ends_at=first_epoch_end(records),
            )
        )

    def in_words(self) -> str:
        """The last sample, the largest first: rank 1 12.1 GiB, its data-loader workers 20.3 GiB; 1.2 GiB free."""
        users = [
            (self._latest[f"rank{rank}/{place.series}"], f"rank {rank}{place.on}")
            for place in (OWN, WORKERS)
            for series, rank in self._samples
            if series == place.series
        ]
        users += [(used, "/dev/shm") for used in [self._latest.get(SHARED.series)] if used]
        largest = sorted(users, reverse=True)[:MOST_NAMED]
        text = ", ".join(f"{name} {size(used, is_coarse=True)}" for used, name in largest)
        free = self._latest.get("memory_available_bytes")
        return text + (f"; {size(free, is_coarse=True)} free" if text and free is not None else "")

    def _add(self, name: str, points: list[Point]) -> None:
        match = _OF_RANK.fullmatch(name)
        series, rank = (match[2], int(match[1])) if match else (name, 0)
        if (match is not None and series in _WATCHED) or name == SHARED.series:
            samples = self._samples.setdefault((series, rank), MemorySamples())
            for step, value, at in points:
                samples.add(MemorySample(step, at, value))

    def _growths(self, series: str) -> dict[int, Growth]:
        return {
            rank: growth
            for (name, rank), samples in self._samples.items()
            if name == series and (growth := samples.growth()) is not None
        }

    def _free_device_bytes(self, rank: int) -> float | None:
        total = self._latest.get(f"rank{rank}/device_memory_total_bytes")
        return None if total is None else total - self._latest[f"rank{rank}/{DEVICE.series}"]


def last_memory(folder: Path) -> str:
    """Describe the memory of an ended attempt's node by its last sample, and a leak before it; empty without any."""
    watch = MemoryWatch(folder)
    watch.look()
    leaks = [finding.evidence for finding in watch.findings({})]
    return "; before it: ".join(filter(None, [watch.in_words(), *leaks]))


def first_epoch_end(records: Mapping[int, RankRecord]) -> int | None:
    """Return the step at which the first epoch ends at the latest; None where it is over or of unknown length."""
    ends = []
    for record in records.values():
        epochs = [event for event in record.of("epoch") if event.get("dataset_length")]
        lengths = [event["dataset_length"] for event in epochs]
        if len(set(lengths)) < len(lengths):
            continue
        for event in epochs:
            samples = (event.get("batch_size") or 1) * ((event.get("sampler") or {}).get("replicas") or 1)
            ends.append((event.get("step") or 0) + math.ceil(event["dataset_length"] / samples))
    return max(ends, default=None)


# Read what the probe wrote of a rank's device when an allocation failed.

MAX_BYTES = 1024 * 1024


def read_device_memory(folder: Path) -> dict[int, DeviceMemory]:
    """Return rank -> its device at the last failed allocation, of all ranks on this node that had one."""
    latest: dict[int, DeviceMemory] = {}
    for path in folder.glob("*.oom.json"):
        with suppress(OSError, ValueError):
            with open_regular(path) as file:
                memory = DeviceMemory.model_validate_json(file.read(MAX_BYTES))
            if memory.rank not in latest or memory.at > latest[memory.rank].at:
                latest[memory.rank] = memory
    return latest
