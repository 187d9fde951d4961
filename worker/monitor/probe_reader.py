"""Read the probe's files of all ranks: the status of every rank of this node, and its stack on request."""

from __future__ import annotations

import os
import re
import signal
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from worker.monitor.hangs import PythonFrame, RankStatus
from worker.monitor.silent_mistakes import RankRecord
from worker.node import processes
from worker.node.regular_files import bytes_of
from worker.streams.json_lines import JsonLines, Record

FOLDER = "probe"
"""Below the attempt's directory; the ranks find it in RANKZERO_PROBE_DIR."""
MAX_EVENTS = 200
MAX_STEP_TIMES = 300
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


class ProbeReader:
    """Tracks the status of each rank of this node. Reads from the beginning, also after a restart of the worker."""

    def __init__(self, folder: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._folder, self._clock = folder, clock
        self._processes: dict[str, _RankProcess] = {}

    def look(self) -> None:
        """Read new lines."""
        for name in record_files(self._folder):
            if name not in self._processes:
                self._processes[name] = _RankProcess(JsonLines(self._folder / name))
            self._processes[name].read()

    def latest(self) -> dict[int, RankStatus]:
        """Return rank -> status; among several processes with this rank, the one that trains now."""
        return {rank: process.status() for rank, process in self._of_ranks().items()}

    def records(self) -> dict[int, RankRecord]:
        """Return rank -> recorded events, for `silent_mistakes`."""
        return {rank: process.record() for rank, process in self._of_ranks().items()}

    def starts(self) -> dict[int, dict[str, Record]]:
        """Return rank -> phase of its start -> the last event that ended it."""
        return {
            rank: {str(event.get("phase")): event for event in process.events.get("start", ())}
            for rank, process in self._of_ranks().items()
        }

    def median_step_s(self) -> float | None:
        """Return the median duration of the last steps of all ranks; None before the first."""
        times = [step_s for process in self._of_ranks().values() for step_s in process.step_times_s]
        return statistics.median(times) if times else None

    def faults(self) -> list[str]:
        """Return one sentence for each part of the probe that failed in a rank and is off there."""
        return [
            f"rank {rank}: the probe's {_part_name(str(event.get('hook')))} part failed: {event.get('message')}"
            for rank, process in sorted(self._of_ranks().items())
            for event in process.events.get("error", ())
        ]

    def terminations(self) -> dict[int, float]:
        """Return rank -> when its process was told to end by SIGTERM and handled it."""
        return {
            rank: float(process.events["terminated"][-1].get("at", 0.0))
            for rank, process in self._of_ranks().items()
            if process.events.get("terminated")
        }

    def recorders(self) -> dict[int, RankRecorder]:
        """Return rank -> what the probe reported of its recorder of collectives."""
        return {rank: _recorder(process.events) for rank, process in self._of_ranks().items()}

    @property
    def folder(self) -> Path:
        """The folder of the probe's records."""
        return self._folder

    def ask_stacks(self, statuses: Sequence[RankStatus], wait_s: float = 2.0) -> dict[int, list[PythonFrame]]:
        """Return rank -> its Python frames, innermost first. May be called from another thread.

        Only processes that can answer are asked; for the others it returns the frames recorded last.
        """
        answering = [status for status in statuses if status.stacks and not status.ended]
        sizes = {status: _request_stack(self._folder, status.pid) for status in answering}
        deadline = self._clock.now() + wait_s
        stacks = {status.rank: list(status.frames) for status in statuses}
        for status, size in sizes.items():
            answer = _read_answer(self._folder, status.pid, size, deadline, self._clock) if size is not None else []
            stacks[status.rank] = answer or stacks[status.rank]
        return stacks

    def _of_ranks(self) -> dict[int, _RankProcess]:
        by_rank: dict[int, _RankProcess] = {}
        for process in self._processes.values():
            rank = process.last.get("rank")
            if isinstance(rank, int) and (rank not in by_rank or process.precedence > by_rank[rank].precedence):
                by_rank[rank] = process
        return dict(sorted(by_rank.items()))


def parse_stack(text: str) -> list[PythonFrame]:
    """Parse the last stack that faulthandler wrote, innermost frame first."""
    last = text.rpartition("(most recent call first):")[2]
    return [PythonFrame(match[1], int(match[2]), match[3]) for match in _FRAME.finditer(last)]


@dataclass
class _RankProcess:
    """One process that was a rank, by its records."""

    tail: JsonLines
    last: Record = field(default_factory=dict)
    first_seen_at: float = 0.0
    ended: bool = False
    frames: tuple[PythonFrame, ...] = ()
    events: dict[str, deque[Record]] = field(default_factory=dict)
    step_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_STEP_TIMES))

    def read(self) -> None:
        while True:
            lines = [line for _, line in self.tail.read()]
            for line in lines:
                with suppress(KeyError, TypeError, ValueError):
                    self._add(line)
            if not lines:
                return

    def _add(self, line: Record) -> None:
        self.first_seen_at = self.first_seen_at or float(line["t"])
        if line.get("step") != self.last.get("step") or line.get("in") != self.last.get("in"):
            self.frames = ()
        self.last = line
        if "stack" in line:
            self.frames = tuple(PythonFrame(str(file), int(number), str(name)) for file, number, name in line["stack"])
        if "step_time_s" in line:
            self.step_times_s.append(float(line["step_time_s"]))
        for event in line.get("events", ()):
            self.events.setdefault(str(event["kind"]), deque(maxlen=MAX_EVENTS)).append(event)
            self.ended = self.ended or event["kind"] == "exit"

    @property
    def precedence(self) -> tuple[bool, float]:
        """Sort key among processes with the same rank: one that has stepped, then the latest."""
        return bool(self.last.get("step")), float(self.last.get("t", 0.0))

    def status(self) -> RankStatus:
        line = self.last
        return RankStatus(
            rank=int(line["rank"]),
            pid=int(line["pid"]),
            world_size=int(line.get("world_size", 1)),
            step=int(line.get("step", 0)),
            last_step_at=line.get("last_step_at"),
            first_seen_at=self.first_seen_at,
            seen_at=float(line["t"]),
            doing=str(line.get("in", "")),
            stacks=bool(line.get("stacks")),
            ended=self.ended,
            frames=self.frames,
        )

    def record(self) -> RankRecord:
        line = self.last
        return RankRecord(
            rank=int(line["rank"]),
            world_size=int(line.get("world_size", 1)),
            step=int(line.get("step", 0)),
            ended=self.ended,
            events=tuple(event for kind in self.events.values() for event in kind),
        )


def _recorder(events: dict[str, deque[Record]]) -> RankRecorder:
    groups = [event.get("ranks") for event in events.get("groups", ())]
    reasons = [str(event.get("why") or "") for event in events.get("collectives", ())]
    return RankRecorder(groups[-1] or {} if groups else {}, reasons[-1] if reasons else "")


_PARTS = {"recorder": "recording", "replicas": "parameters"}
_OF_MODULES = {
    "optim": "steps",
    "data": "data",
    "parallel": "parameters",
    "writer": "writers",
    "c10d": "start",
    "callback": "start",
}


def _part_name(hook: str) -> str:
    """Name a part of the probe in words; a module's name stands for all hooks into it."""
    if "." not in hook:
        return _PARTS.get(hook, hook)
    subject = next((name for pattern, name in _OF_MODULES.items() if pattern in hook), "")
    return f"{subject} ({hook})".strip()


def record_files(folder: Path) -> list[str]:
    """Return the names of the probe's files, one for each process; none without a folder."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))  # noqa: PTH208
    except OSError:
        return []


# -- stacks on demand ----------------------------------------------------------------------------


def _request_stack(folder: Path, pid: int) -> int | None:
    """Signal the process; return the size of its stack file before, None if it cannot be asked."""
    path = folder / f"{pid}.stack"
    if processes.environment(pid).get("RANKZERO_PROBE_DIR") != str(folder) or not _catches_signal(pid):
        return None
    try:
        size = path.stat().st_size
        os.kill(pid, signal.SIGUSR2)
    except OSError:
        return None
    return size


def _catches_signal(pid: int) -> bool:
    """Whether the process catches SIGUSR2, which would end it otherwise."""
    with suppress(OSError, ValueError, StopIteration):
        status = Path(f"/proc/{pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught, 16) >> (signal.SIGUSR2 - 1) & 1)
    return False


def _read_answer(folder: Path, pid: int, start: int, deadline: float, clock: Clock) -> list[PythonFrame]:
    """Read the stack after byte `start`; without an end mark it is complete when it has not grown for a moment."""
    path, size = folder / f"{pid}.stack", start
    while clock.now() < deadline:
        clock.pause(0.05)
        with suppress(OSError):
            new_size = path.stat().st_size
            frames = parse_stack(bytes_of(path)[start:].decode(errors="replace")) if new_size == size > start else []
            if frames:
                return frames
            size = new_size
    return []


# The Flight Recorder of one rank, as the probe reports it.


@dataclass(frozen=True)
class RankRecorder:
    """What the probe reported of one rank's recorder."""

    groups: Mapping[str, list[int]] = field(default_factory=dict)
    """Ranks of each process group."""
    why_not: str = ""
    """Why torch records no collectives there."""
