"""Remove the folders of attempts that ended long ago, of which the server has everything: the oldest first."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from domain.choices import RUN_ID
from domain.clock import Clock
from domain.text.formats import size
from domain.text.paths import problem_in_words
from worker.environments.folders import is_short
from worker.node.attempt_files import ASSIGNMENT_FILE
from worker.node.state_files import REPORTED_FILE, has_sent_all, read_object

log = logging.getLogger(__name__)
REMOVED = "removed-"
"""Begins the name of a folder that is being removed, which nothing finds any more."""
FIRST_LOOK_S = 60.0
"""Sooner than the agent of an account ends that has nothing to do."""
LOOK_EVERY_S = 600.0
PAUSE_PER_REMOVAL = 9
"""The pause after each removal is so many times as long as that, and at least a second: trainings need the disk."""
LEAST_PAUSE_S = 1.0


@dataclass(frozen=True)
class EndedAttempt:
    """An attempt on this node whose end the server has, with everything that it is ever sent."""

    folder: Path
    run_id: str
    number: int
    ended_at: float
    """When the server had everything, in seconds since the epoch."""


class EndedAttempts:
    """The ended attempts below one data directory, of which only the newest are kept."""

    def __init__(self, data: Path, keep_s: float, is_in_use: Callable[[EndedAttempt], bool], clock: Clock) -> None:
        """`keep_s`: how long each is kept where space is not short. `is_in_use`: whether something needs one now."""
        self._data, self._keep_s, self._is_in_use, self._clock = data, keep_s, is_in_use, clock

    def tidy(self) -> Iterator[float]:
        """Remove what is not to be kept, a folder at a time; yields the seconds to pause after each."""
        for leftover in (self._data / "runs").glob(f"*/attempts/*/{REMOVED}node*"):  # of a worker that was killed
            yield self._timed(leftover)
        for attempt in removable(self._data):
            if self._is_due(attempt) and (away := self._taken_away(attempt)) is not None:
                yield self._timed(away)
                free = size(shutil.disk_usage(self._data).free)
                log.info("run %s: the folder of attempt %d is removed; %s free", attempt.run_id, attempt.number, free)

    def _is_due(self, attempt: EndedAttempt) -> bool:
        is_old = self._clock.wall() - attempt.ended_at >= self._keep_s
        return (is_old or is_short(self._data)) and not self._is_in_use(attempt)

    def _taken_away(self, attempt: EndedAttempt) -> Path | None:
        """Rename the folder, so that it is whole or not there at all; return where it is, None where that fails."""
        away = attempt.folder.with_name(f"{REMOVED}{attempt.folder.name}")
        try:
            return attempt.folder.rename(away)
        except OSError as error:
            log.warning("%s cannot be removed: %s", attempt.folder, problem_in_words(error))
            return None

    def _timed(self, folder: Path) -> float:
        """Delete a folder; return the seconds to pause then."""
        began = self._clock.now()
        shutil.rmtree(folder, ignore_errors=True)  # follows no link
        if folder.exists():
            log.warning("%s cannot be removed whole: delete what is left of it", folder)
        with suppress(OSError):  # another node's of several on this machine
            folder.parent.rmdir()
        return max(LEAST_PAUSE_S, PAUSE_PER_REMOVAL * (self._clock.now() - began))


def removable(data: Path) -> list[EndedAttempt]:
    """Return the attempts whose folders nothing needs, those that ended first in front.

    A run's newest attempt here is none of them unless it succeeded: a resume looks at it first."""
    folders = [folder for folder in _folders(data) if folder.resolve() == data.resolve() / folder.relative_to(data)]
    newest = dict[str, int]()
    for folder in folders:
        newest[_run(folder)] = max(newest.get(_run(folder), 0), _number(folder))
    mounts = [Path(part.mountpoint) for part in psutil.disk_partitions(all=True)]
    in_place = {folder: workdir for folder in folders if (workdir := _workdir(folder)).is_relative_to(data.resolve())}
    # One that worked in another's folder stays, too: it is what says so.
    needed = [*mounts, *(folder.resolve() for folder in in_place), *in_place.values()]
    ended = [_ended(folder) for folder in folders if _may_go(folder, newest, needed)]
    return sorted(ended, key=lambda attempt: attempt.ended_at)


MOST_ENTRIES = 200_000


def held_bytes(attempts: Iterable[EndedAttempt]) -> tuple[int, bool]:
    """The bytes on the disk that these folders hold; and whether that is all of them, as no more entries are counted
    than a moment allows."""
    held = entries = 0
    for attempt in attempts:
        for parent, _, names in os.walk(attempt.folder):
            for name in names:
                with suppress(OSError):
                    held += Path(parent, name).lstat().st_blocks * 512
            entries += len(names)
            if entries > MOST_ENTRIES:
                return held, False
    return held, True


def _folders(data: Path) -> Iterator[Path]:
    for folder in (data / "runs").glob("*/attempts/*/node*"):
        if re.fullmatch(rf"(?:{RUN_ID.pattern})/attempts/\d+/node\d+", str(folder.relative_to(data / "runs"))):
            yield folder


def _may_go(folder: Path, newest: dict[str, int], needed: Iterable[Path]) -> bool:
    reported = read_object(folder / REPORTED_FILE)
    is_next = _number(folder) == newest[_run(folder)] and reported.get("state") != "succeeded"
    return has_sent_all(reported) and not (is_next or any(place.is_relative_to(folder.resolve()) for place in needed))


def _workdir(folder: Path) -> Path:
    """The folder in which an attempt ran in place; the root for none."""
    spec = read_object(folder / ASSIGNMENT_FILE).get("spec")
    return Path(os.path.realpath(str(spec.get("workdir") or "/") if isinstance(spec, dict) else "/"))


def _ended(folder: Path) -> EndedAttempt:
    ended_at = (folder / REPORTED_FILE).lstat().st_mtime
    return EndedAttempt(folder, _run(folder), _number(folder), ended_at)


def _run(folder: Path) -> str:
    return folder.parts[-4]


def _number(folder: Path) -> int:
    return int(folder.parts[-2])
