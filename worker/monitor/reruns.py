"""Read what the probe noted of processes in which the script's main part runs again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from domain.messages import Finding
from worker.diagnosis.causes import reruns
from worker.diagnosis.causes.reruns import Rerun
from worker.monitor.hangs import RankStatus
from worker.node.state_files import read_object

KIND = "script runs again"


def read_rerun(folder: Path) -> Rerun | None:
    """Return the first certain rerun that the probe noted in its folder."""
    return reruns.first([rerun for path in sorted(folder.glob("rerun-*.json")) for rerun in _read(path)])


def rerun_in_outputs(outputs: Mapping[int, str]) -> Rerun | None:
    """Return the first certain rerun with a traceback in the ranks' outputs, where nothing was noted."""
    candidates = [reruns.find_rerun(text, rank) for rank, text in sorted(outputs.items())]
    return reruns.first([rerun for rerun in candidates if rerun is not None])


def have_stepped_since(rerun: Rerun, statuses: Iterable[RankStatus]) -> bool:
    """Whether a rank still trained: it does not wait for that process."""
    return any((status.last_step_at or 0.0) > rerun.at for status in statuses)


def finding(rerun: Rerun) -> Finding:
    """Return the finding of a run that is not known to hang."""
    return Finding(
        kind=KIND,
        evidence=f"{rerun.sentence[:1].upper()}{rerun.sentence[1:]}.",
        meaning="Such a process does not do what it was started for: the rank waits for it without end, or fails with "
        "an error that only follows from this.",
        fix=rerun.fix,
    )


def _read(path: Path) -> list[Rerun]:
    note = read_object(path)
    with suppress(KeyError, TypeError, ValueError):
        rank, at, is_guarded = int(note["rank"]), float(note["at"]), note["guarded"] is not False
        imported = (str(note["imported"][0]), int(note["imported"][1])) if note.get("imported") else None
        return [Rerun(str(note["file"]), int(note["line"]), str(note["sign"]), rank, at, is_guarded, imported)]
    return []
