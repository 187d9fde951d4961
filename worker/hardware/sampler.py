"""Sample this node's hardware while runs train on it, into a file in the directory of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from worker.hardware.faults import RecentFaults, faults_in
from worker.hardware.gpus import Gpus, KernelLog
from worker.hardware.host import Host, RankProcesses, last_records, recorded
from worker.hardware.readings import Readings
from worker.node import processes
from worker.node.attempt_files import LAUNCH_FILE, STATE_FILE
from worker.node.hardware import GPUS, GpuReader
from worker.node.regular_files import append
from worker.node.state_files import read_object
from worker.streams.json_lines import JsonLines, JsonPoints, Record
from worker.streams.point_uploader import OffsetOf

FILE = "hardware.jsonl"
"""Below the attempt's directory: one line a sample."""
EVERY_S = 5.0
DIGITS = 12


@dataclass(frozen=True)
class SampledAttempt:
    """An attempt on this node: its directory, and the devices it has."""

    folder: Path
    devices: tuple[str, ...]


class HardwareSampler:
    """Samples for all attempts on this node. Called by one thread."""

    def __init__(
        self,
        data_dir: Path,
        gpus: GpuReader = GPUS,
        sysfs: Path = Path("/sys"),
        kernel_log: Path = Path("/dev/kmsg"),
        faults: RecentFaults | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`faults` gets those of GPUs also while nothing trains; None: they are not watched then."""
        self._host, self._gpus = Host(data_dir, sysfs), Gpus(gpus)
        self._ranks, self._kernel_log = RankProcesses(), KernelLog(kernel_log)
        self._faults, self._clock = faults, clock

    def close(self) -> None:
        """Close the kernel's log."""
        self._kernel_log.close()

    def sample(self, attempts: Iterable[SampledAttempt]) -> None:
        """Add a line to the file of each attempt whose ranks exist; while there is none, only faults are read."""
        training = [(attempt, ranks) for attempt in attempts if (ranks := _ranks(attempt.folder))]
        if not training and self._faults is None:
            return
        at, wall = self._clock.now(), self._clock.wall()
        gpus = self._gpus.read(at, only_faults=not training)
        kernel = self._kernel_log.read()
        if self._faults is not None:
            ids = {bus: self._gpus.id_at(bus) for bus, _ in kernel.xids}
            self._faults.add(faults_in(gpus, kernel, ids, wall))
        if not training:
            return
        host = self._host.read(at)
        host.events.update(kernel.events)
        for bus, xid in kernel.xids:
            gpu = gpus.get(self._gpus.id_at(bus), host)
            gpu.events[f"Xid {xid}" if gpu is not host else f"Xid {xid} on the GPU at {bus}"] = xid
        for attempt, ranks in training:
            readings = Readings(dict(host.values), dict(host.events))
            readings.update(self._ranks.read(at, ranks, _process_memory(gpus.values())))
            own = _own_processes(attempt, gpus)
            for number, device in enumerate(attempt.devices):
                if device in gpus:
                    if device in own:
                        readings.add(f"gpu{number}/processes", own[device])
                    readings.update(_without_processes(gpus[device]).under(f"gpu{number}"))
            step, device_memory = recorded(last_records(attempt.folder / "probe", ranks))
            readings.update(device_memory)
            _append(attempt.folder / FILE, wall, step, readings)


def _ranks(folder: Path) -> dict[str, int]:
    """Rank -> process id of the attempt's ranks on this node; empty before they exist and after the end."""
    state = read_object(folder / STATE_FILE)
    if state.get("running_at") is None or state.get("state") == "ended":
        return {}
    return dict(state.get("ranks") or {})


def _process_memory(gpus: Iterable[Readings]) -> dict[int, float]:
    """Process id -> the memory it holds on all GPUs."""
    memory: dict[int, float] = {}
    for readings in gpus:
        for name, value in readings.values.items():
            if name.startswith("process/"):
                pid = int(name.split("/")[1])
                memory[pid] = memory.get(pid, 0.0) + value
    return memory


def _own_processes(attempt: SampledAttempt, gpus: Mapping[str, Readings]) -> dict[str, int]:
    """How many processes of the attempt are on each of its GPUs; empty where the driver shows none on any of them, as
    in a container that does not see their numbers."""
    marker = {
        processes.RUN_VARIABLE: read_object(attempt.folder / LAUNCH_FILE).get("env", {}).get(processes.RUN_VARIABLE)
    }
    own = {
        device: sum(marker.items() <= processes.environment(pid).items() for pid in _pids(gpus[device]))
        for device in attempt.devices
        if device in gpus
    }
    return own if any(own.values()) else {}


def _pids(readings: Readings) -> list[int]:
    return [int(name.split("/")[1]) for name in readings.values if name.startswith("process/")]


def _without_processes(readings: Readings) -> Readings:
    values = {name: value for name, value in readings.values.items() if not name.startswith("process/")}
    return Readings(values, readings.events)


def _append(path: Path, wall: float, step: int, readings: Readings) -> None:
    """Append a line; on a full disk the sample is lost, and a torn line is ended by the next one's newline."""
    values = {name: float(f"{value:.{DIGITS}g}") for name, value in readings.values.items() if value is not None}
    line = {"t": round(wall, 3), "step": step, "values": values}
    if readings.events:
        line["events"] = readings.events
    with suppress(OSError):
        append(path, f"\n{json.dumps(line, separators=(',', ':'))}\n")


# An attempt's hardware samples as a source of points.


class HardwareFile:
    """The samples of one attempt on this node; there is at most one file, and it only grows."""

    def __init__(self, folder: Path, offset_of: OffsetOf) -> None:
        self._lines, self._offset_of = JsonLines(folder / FILE), offset_of
        self._points: JsonPoints | None = None

    def sources(self, final: bool) -> Iterator[JsonPoints]:
        """Yield this source once there are samples. Raises what `offset_of` raises."""
        if self._lines.size_bytes:
            if self._points is None:
                self._lines.offset = self._offset_of(FILE, 0)
                self._points = JsonPoints(FILE, self._lines, "hardware", points_of)
            yield self._points


def points_of(record: Record) -> Iterator[tuple[str, int, float]]:
    """Yield (tag, step, value) of one sample; a record that is none yields nothing."""
    step, values = record.get("step"), record.get("values")
    if not isinstance(step, int) or not isinstance(values, dict):
        return
    events = {f"event/{text}": count for text, count in (record.get("events") or {}).items()}
    for name, value in (values | events).items():
        if isinstance(value, float | int):
            yield name, step, float(value)
