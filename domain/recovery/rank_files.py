"""Checkpoints that several ranks write at one moment, each its own: rank 0's is the one to go on from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SAME_MOMENT_S = 5.0
"""Seconds within which the ranks of one run write what belongs to one step."""
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
    is_same_moment = one.step == other.step and abs(one.written_at - other.written_at) <= SAME_MOMENT_S
    has_rank = rank_in(one.path) is not None and rank_in(other.path) is not None
    is_alike = re.sub(r"\d+", "#", one.path) == re.sub(r"\d+", "#", other.path)
    return is_same_moment and is_alike and (has_rank or one.path == other.path)
