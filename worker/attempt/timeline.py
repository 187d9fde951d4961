"""The phases of an attempt's start on this node, read from the files that they leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.launch.timeline import COMPILE, LAST
from domain.messages import PhaseEnd
from worker.launch.warm import IS_WARM
from worker.monitor.probe_reader import ProbeReader
from worker.node.attempt_files import (
    ASSIGNMENT_FILE,
    DATA_FILE,
    ENVIRONMENT_FILE,
    EXISTING_FILE,
    LAUNCH_FILE,
    STATE_FILE,
    WARM_FILE,
)
from worker.node.state_files import read_object


class Timeline:
    """Reads the phases that have ended so far, until the server has the first step."""

    def __init__(self, folder: Path, *, has_preflight: bool) -> None:
        self._folder, self._has_preflight = folder, has_preflight
        self._acknowledged: list[PhaseEnd] = []
        self._read_at: float | None = None

    def news(self, now: float, probe: ProbeReader | None, *, final: bool) -> list[PhaseEnd] | None:
        """Return all phases that have ended if the server lacks some; at most once a second, but if `final`.

        The first call waits, too: what takes less than a second is reported with what follows it."""
        self._read_at = now if self._read_at is None else self._read_at
        is_complete = any(end.phase == LAST for end in self._acknowledged)
        if is_complete or (now - self._read_at < EVERY_S and not final):
            return None
        self._read_at = now
        ends = [*_of_files(self._folder, self._has_preflight), *(_of_ranks(probe) if probe else ())]
        return None if ends == self._acknowledged else ends

    def acknowledged(self, ends: list[PhaseEnd]) -> None:
        """Note that the server has these phases."""
        self._acknowledged = ends


EVERY_S = 1.0


def _of_files(folder: Path, has_preflight: bool) -> Iterator[PhaseEnd]:
    """Yield the phases before the ranks exist, by the times of the files that end them."""
    files = {
        "placed": ASSIGNMENT_FILE,
        "environment": ENVIRONMENT_FILE,
        "data": DATA_FILE,
        "code fetched": EXISTING_FILE,
    }
    if (folder / "resume").exists():
        files["checkpoint fetched"] = LAUNCH_FILE
    for phase, name in files.items():
        with suppress(OSError):
            note = str(read_object(folder / name).get("note", "")) if phase in ("environment", "data") else ""
            yield PhaseEnd(phase=phase, at=(folder / name).stat().st_mtime, note=note)
    state = read_object(folder / STATE_FILE)
    moments = {"process": "running_at"} | ({"preflight": "started_at"} if has_preflight else {})
    for phase, name in moments.items():
        if isinstance(at := state.get(name), float):
            yield PhaseEnd(phase=phase, at=at, note=_note(folder, state) if phase == "process" else "")


def _note(folder: Path, state: dict[str, Any]) -> str:
    """How torchrun came to be; empty where nothing is said about it."""
    note = str(read_object(folder / WARM_FILE).get("note", ""))
    return "" if state.get("is_warm") is False and note == IS_WARM else note


def _of_ranks(probe: ProbeReader) -> Iterator[PhaseEnd]:
    """Yield each phase that all ranks of this node have ended which have begun, with the last one's time."""
    probe.look()
    by_rank = list(probe.starts().values())
    for phase in dict.fromkeys(name for ends in by_rank for name in ends):
        with suppress(KeyError, TypeError, ValueError):
            ends_of_phase = [_phase_end(ends[phase]) for ends in by_rank if phase in ends]
            if phase == COMPILE or len(ends_of_phase) == len(by_rank):
                yield max(ends_of_phase, key=lambda end: end.at)


def _phase_end(event: dict[str, Any]) -> PhaseEnd:
    """The end that a rank noted; compilation is spread over a step, so its sum is laid behind its beginning."""
    if event["phase"] == COMPILE:
        began_at = float(event["began"])
        return PhaseEnd(phase=COMPILE, at=began_at + float(event["seconds"]), began_at=began_at)
    return PhaseEnd(phase=str(event["phase"]), at=float(event["at"]))
