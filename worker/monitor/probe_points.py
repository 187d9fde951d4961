"""The probe's files as point sources: times, memory and phases of each rank, and rates of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from domain.checkpoint_use.resumed_loss import FIRST_SAMPLES
from domain.performance.efficiency import FIGURES as REDUCTION
from domain.performance.efficiency import PARAMETERS
from domain.performance.efficiency import TAG as REDUCTION_TAG
from domain.performance.phases import BESIDES, PHASES, TAG
from worker.monitor.probe_reader import FOLDER, record_files
from worker.streams.json_lines import JsonLines, JsonPoints, Record, is_step
from worker.streams.point_uploader import OffsetOf

PER_RANK = ("step_time_s", "data_wait_s")
OF_ALL_RANKS = ("samples_per_s", "tokens_per_s")
"""Rates of rank 0 that count once for each rank."""


class ProbeFiles:
    """The probe's files of all ranks on this node as point sources."""

    def __init__(self, folder: Path, offset_of: OffsetOf) -> None:
        self._folder, self._offset_of = folder, offset_of
        self._sources: dict[str, JsonPoints] = {}

    def sources(self, final: bool) -> Iterator[JsonPoints]:
        """Yield the source of each file. Raises what `offset_of` raises."""
        for name in record_files(self._folder):
            if name not in self._sources:
                path = f"{FOLDER}/{name}"
                lines = JsonLines(self._folder / name, self._offset_of(path, 0))
                self._sources[name] = JsonPoints(path, lines, "probe", points_of)
            yield self._sources[name]


def points_of(record: Record) -> Iterator[tuple[str, int, float]]:
    """Yield (tag, step, value) of one record. Rank 0's rates stand for all ranks, so that points depend on one file
    only."""
    rank, step = record.get("rank"), record.get("step", "")
    if not is_step(step):
        return
    for name in PER_RANK:
        if isinstance(record.get(name), float | int):
            yield f"rank{rank}/{name}", step, float(record[name])
    if "step_time_s" in record and isinstance(record.get("peak_memory_bytes"), int):
        yield f"rank{rank}/peak_memory_bytes", step, float(record["peak_memory_bytes"])
    if rank == 0 and isinstance(record.get("steps_per_s"), float | int):
        yield "steps_per_s", step, float(record["steps_per_s"])
    for name in OF_ALL_RANKS:
        if rank == 0 and isinstance(record.get(name), float | int):
            yield name, step, float(record[name]) * int(record.get("world_size", 1))
    yield from _phases_of(record.get("phases"), rank)
    if rank == 0:
        yield from _parameters_of(record.get("events") or ())
        yield from _reduction_of(record.get("events") or ())
        yield from _first_samples_of(record.get("events") or ())


def _phases_of(phases: Any, rank: Any) -> Iterator[tuple[str, int, float]]:
    """Yield the total of each phase up to the last step that it counts."""
    if isinstance(phases, dict) and is_step(step := phases.get("step", "")):
        for name in (*PHASES, *BESIDES):
            if isinstance(phases.get(name), float | int):
                yield TAG.format(rank=rank, name=name), step, float(phases[name])


def _parameters_of(events: Any) -> Iterator[tuple[str, int, float]]:
    """Yield the number of the model's parameters, noted before the first step."""
    for event in events:
        if event.get("kind") == "parameters" and isinstance(event.get("count"), int):
            yield PARAMETERS, 0, float(event["count"])


def _reduction_of(events: Any) -> Iterator[tuple[str, int, float]]:
    """Yield the figures of the first wrapped model's gradient reduction; rank 0 speaks for all."""
    for event in events:
        if event.get("kind") == "reduction" and event.get("model") == 0 and is_step(event.get("step", "")):
            sizes = event["buckets_bytes"]
            figures = event | {
                "buckets": len(sizes),
                "gradient_bytes": sum(sizes),
                "largest_bytes": max(sizes),
            }
            for name in REDUCTION:
                if name in figures:
                    yield REDUCTION_TAG + name, event["step"], float(figures[name])


def _first_samples_of(events: Any) -> Iterator[tuple[str, int, float]]:
    """Yield a digest of the first samples of each epoch: after a resume they tell whether the data begin again."""
    for event in events:
        digests = event.get("digests") if event.get("kind") == "epoch" else None
        if digests and is_step(event.get("step", "")):
            length = max(digests, key=int)
            yield f"{FIRST_SAMPLES}{length}", event["step"], float(digests[length])
