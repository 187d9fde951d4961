"""What follows a failure: another attempt or none, and the checkpoint it continues from. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict

from domain.checkpoints.names import SAME_MOMENT_S, PartName, is_part, part_name, without_rank
from domain.messages import Reason
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec

HANGS_IN_A_ROW = 3
"""A run that hangs this often in a row is not resumed again."""
WOULD_REPEAT = frozenset({Reason.SCRIPT_MISSING, Reason.LAUNCH_FAILED, Reason.RESUME_FAILED})
"""Reasons for which another attempt would certainly fail again."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
"""The pauses between attempts that make no progress: each is twice the one before."""


@dataclass(frozen=True)
class FailedAttempt:
    """The facts about a failed attempt that decide whether another one is worth starting."""

    reason: str | None
    sentence: str
    key: tuple[object, ...] = ()
    """Equal for two attempts that failed in the same way."""
    has_stepped: bool = True
    """It made a step beyond the checkpoint it started from."""
    restarts: int = 0


@dataclass(frozen=True)
class Restart:
    """The decision to open the next attempt."""

    why: str
    restarts: int
    pause_s: float = 0.0


@dataclass(frozen=True)
class Leave:
    """The decision to leave the run failed; `why` is None where no restart was to be expected."""

    why: str | None = None


def decide_restart(spec: RunSpec, failures: Sequence[FailedAttempt]) -> Restart | Leave:
    """Decide whether a failed run is restarted. `failures`: its latest attempts that failed in a row, newest first."""
    newest = failures[0]
    if newest.reason == Reason.HUNG and spec.on_hang == "resume":
        return _after_hang(failures)
    if newest.reason == Reason.NODE_LOST and spec.elastic:
        return Restart(f"continues on the available nodes: {newest.sentence}", newest.restarts)
    if not spec.max_restarts:
        return Leave()
    if newest.reason in WOULD_REPEAT:
        return Leave("not restarted: another attempt would fail in the same way")
    if newest.restarts >= spec.max_restarts:
        return Leave(f"not restarted: {newest.restarts} of {spec.max_restarts} restarts are used")
    if _is_the_same_again(failures):
        return Leave("not restarted: it failed in the same way, without a step beyond its starting point")
    count = newest.restarts + 1
    why = f"restarted ({count} of {spec.max_restarts}): {newest.sentence}"
    return Restart(why, count, _pause_s(failures))


def _after_hang(failures: Sequence[FailedAttempt]) -> Restart | Leave:
    in_a_row = failures[:HANGS_IN_A_ROW]
    if len(in_a_row) == HANGS_IN_A_ROW and all(failure.reason == Reason.HUNG for failure in in_a_row):
        return Leave(f"not resumed: it hung {HANGS_IN_A_ROW} times in a row")
    return Restart("resumed after a hang", failures[0].restarts)


def _is_the_same_again(failures: Sequence[FailedAttempt]) -> bool:
    """Whether the run failed as before without progress; a lost node is not the run's fault and never counts."""
    newest, *before = failures
    if newest.reason == Reason.NODE_LOST or newest.has_stepped or not before:
        return False
    return newest.key == before[0].key


def _pause_s(failures: Sequence[FailedAttempt]) -> float:
    """Seconds to wait before the restart: 0 after progress or a lost node, otherwise doubled each time."""
    futile = 0
    for failure in failures:
        if failure.has_stepped or failure.reason == Reason.NODE_LOST:
            break
        futile += 1
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (futile - 1)) if futile else 0.0


# Which checkpoints a run leaves behind when it goes back to before a spike of its loss. Pure.


class Rollback(BaseModel):
    """The last good point of an attempt that was rolled back, and what is different after it."""

    model_config = ConfigDict(frozen=True)

    good_step: int | None
    """The step of the last good point; None where only its time is known."""
    good_at: float
    """When it was logged; the clock of rank 0's node, as below."""
    bad_at: float
    """When the first bad point was logged: checkpoints written from then on are left behind."""
    why: str
    """rolled back by the alert spike, with the learning rate 0.05 instead of 0.1"""
    changes: dict[str, Any] = {}
    """Fields of the run's spec that differ from then on: lr, and args where they passed it."""

    def leaves(self, step: int | None, written_at: float) -> bool:
        """Whether a checkpoint is left behind: it may hold what broke the loss."""
        if written_at >= self.bad_at:
            return True
        if step is None or self.good_step is None:
            return written_at > self.good_at
        return step > self.good_step


def is_left_behind(
    rollbacks: Sequence[tuple[int, Rollback]], attempt: int, step: int | None, written_at: float
) -> bool:
    """Whether a rollback of this attempt, or of a later one, leaves a checkpoint of the attempt behind."""
    return any(number >= attempt and rollback.leaves(step, written_at) for number, rollback in rollbacks)


# The checkpoint that a run continues from: the newest, but no part of one, and none where its parts are not clear.
# Of those that several ranks write at one moment, each its own, rank 0's.

MOST_NAMED = 4
_RANK = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)
_FOLDER = re.compile(r"(?P<word>[A-Za-z]*)[-_.=]?(?P<rank>\d+)$")
_COUNTED = {"epoch", "ep", "step", "steps", "iter", "iteration", "checkpoint", "ckpt", "version", "v", "fold"}
"""Words before a folder's number that counts something else."""


@dataclass(frozen=True)
class SavedFile:
    """A checkpoint, as far as it tells which rank wrote it."""

    path: str
    step: int | None
    written_at: float
    node_rank: int = 0
    attempt: int = 0

    @property
    def is_archive(self) -> bool:
        """Whether it is a folder, or several files of one save."""
        return self.path.endswith(".tar") and not self.path.endswith(".pth.tar")


class UnclearCheckpoint(InvalidRequest):
    """Nothing tells which of a run's files are one checkpoint, so a person has to name one."""

    def __init__(self, names: Sequence[str]) -> None:
        shown = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if names[MOST_NAMED:] else "")
        super().__init__(
            "checkpoint",
            f"It is unclear which files of the run form one checkpoint ({shown}): none is chosen automatically. Name "
            "the one to start from: `rankzero resume RUN --checkpoint NAME`, `--resume RUN:NAME`, or *Resume*.",
        )


def choose_checkpoint(files: Sequence[SavedFile], world_size: int) -> SavedFile | None:
    """Return the first of a run's files, the best first, that is a checkpoint; None for no files.

    Raises UnclearCheckpoint where it may be one of several files that are a checkpoint only together."""
    whole = [file for file in files if not is_part(file.path)]
    if not whole:
        if files:
            raise UnclearCheckpoint([file.path for file in files])
        return None
    chosen = rank_0s(whole[0], whole)
    if others := _may_belong_to(chosen, files, world_size):
        raise UnclearCheckpoint([chosen.path, *(other.path for other in others)])
    return chosen


def _may_belong_to(chosen: SavedFile, files: Sequence[SavedFile], world_size: int) -> list[SavedFile]:
    """The files that may be one checkpoint with the chosen one; itself where it is one rank's of several."""
    if chosen.is_archive:
        return []
    name = part_name(PurePosixPath(chosen.path).name)
    beside = [file for file in files if file != chosen and file.attempt == chosen.attempt and not file.is_archive]
    at_once = [file for file in beside if abs(file.written_at - chosen.written_at) <= SAME_MOMENT_S]
    if part_name(chosen.path).rank is not None:
        alike = [file for file in at_once if without_rank(file.path) == without_rank(chosen.path)]
        return alike or ([chosen] if name.rank is not None and world_size > 1 else [])
    in_folder = [file for file in at_once if PurePosixPath(file.path).parent == PurePosixPath(chosen.path).parent]
    return [file for file in in_folder if _goes_with(name, part_name(PurePosixPath(file.path).name))]


def _goes_with(name: PartName, other: PartName) -> bool:
    """Whether another file may be a part of the same checkpoint: an optimizer's, or one of several models'."""
    are_several = bool(name.models and other.models) and name.models != other.models
    return other.is_companion or (are_several and name.numbers == other.numbers)


def rank_in(path: str) -> int | None:
    """The rank that a path names: `rank1.pt`, `logs/rank_1/last.pt`, or a folder's last number, `run-1/last.pt`."""
    if named := _RANK.findall(path):
        return int(named[-1])
    for folder in reversed(path.split("/")[:-1]):
        if match := _FOLDER.search(folder):
            return None if match["word"].lower() in _COUNTED else int(match["rank"])
    return None


def rank_0s(chosen: SavedFile, others: Sequence[SavedFile]) -> SavedFile:
    """Return of one checkpoint that several ranks wrote at the same moment the lowest rank's."""
    alike = [other for other in others if _is_same_but_of_rank(chosen, other)]
    return min([chosen, *alike], key=lambda one: (one.node_rank, rank_in(one.path) or 0))


def _is_same_but_of_rank(one: SavedFile, other: SavedFile) -> bool:
    """Whether their names differ in numbers alone: the rank's, and those of clocks that each rank reads."""
    is_same_save = one.attempt == other.attempt and one.step == other.step
    is_same_moment = is_same_save and abs(one.written_at - other.written_at) <= SAME_MOMENT_S
    has_rank = rank_in(one.path) is not None and rank_in(other.path) is not None
    is_alike = re.sub(r"\d+", "#", one.path) == re.sub(r"\d+", "#", other.path)
    return is_same_moment and is_alike and (has_rank or one.path == other.path)
