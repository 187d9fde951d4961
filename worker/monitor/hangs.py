"""Detect hangs: distinguish them from slow or busy ranks, and name the rank that the others wait for. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

PATIENCE_S = 60.0
PATIENCE_STEPS = 10
BUSY_PATIENCE_S = 1800.0
"""Timeout while saving, validating or compiling, which may take long."""
START_PATIENCE_S = 600.0
LOST_PATIENCE_S = 30.0
"""Timeout from when it is certain that a process for which a rank works or waits will not do its part."""
BUSY = frozenset({"saving", "validating", "compiling"})
WAITING = frozenset({"waiting", "backward"})
"""Inside a collective, or in the backward pass, where DDP averages gradients."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|/worker/probe/|^<")


class PythonFrame(NamedTuple):
    """One line of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]} line {self.line} in {self.function}"


@dataclass(frozen=True)
class RankStatus:
    """Status of a rank by its last probe record."""

    rank: int
    pid: int
    world_size: int = 1
    step: int = 0
    """Optimizer steps of this process."""
    last_step_at: float | None = None
    first_seen_at: float = 0.0
    seen_at: float = 0.0
    doing: str = ""
    """starting, stepping, data, computing, backward, waiting, validating, saving or compiling."""
    stacks: bool = False
    """Whether it answers a request for its stack."""
    ended: bool = False
    frames: tuple[PythonFrame, ...] = ()
    """Frames in the user's code, innermost first, when it has not stepped for a while."""

    @property
    def moved_at(self) -> float:
        """Time of its last step, or when it was first seen."""
        return self.last_step_at or self.first_seen_at


@dataclass(frozen=True)
class HangVerdict:
    """The ranks have stopped stepping."""

    since: float
    idle_s: float
    behind: tuple[RankStatus, ...]
    """Ranks that the others wait for; empty when nothing distinguishes them."""
    sentence: str


def users_frame(frames: Iterable[PythonFrame]) -> PythonFrame | None:
    """Return the innermost frame in the user's own code, else the innermost one."""
    stack = list(frames)
    return next((frame for frame in stack if not _LIBRARY.search(frame.file)), stack[0] if stack else None)


def ranks_behind(statuses: Collection[RankStatus]) -> list[RankStatus]:
    """Return the ranks that the others wait for: those with fewer steps, or those not waiting while others are."""
    fewest = min((status.step for status in statuses), default=0)
    behind = [status for status in statuses if status.step == fewest]
    if len(behind) == len(statuses):
        behind = [status for status in statuses if status.doing not in WAITING and not status.ended]
    return sorted(behind, key=lambda status: status.rank) if len(behind) < len(statuses) else []


def hang_verdict(
    statuses: Collection[RankStatus],
    now: float,
    median_step_s: float | None,
    patience_s: float | None = None,
    lost_at: float | None = None,
) -> HangVerdict | None:
    """Return None while some rank still steps, or may be expected to take this long.

    `lost_at` is when a process that a rank started proved useless; it counts if no rank has stepped since."""
    running = [status for status in statuses if not status.ended]
    if not running:
        return None
    since = max(status.moved_at for status in running)
    is_lost = lost_at is not None and since <= lost_at and now - lost_at > LOST_PATIENCE_S
    if not is_lost and now - since <= _limit_s(running, median_step_s, patience_s):
        return None
    behind = tuple(ranks_behind(statuses))
    sentence = _sentence(now - since, median_step_s, behind, statuses)
    return HangVerdict(since, now - since, behind, sentence)


def _limit_s(running: list[RankStatus], median_step_s: float | None, patience_s: float | None) -> float:
    limit_s = patience_s
    if limit_s is None:
        limit_s = max(PATIENCE_S, PATIENCE_STEPS * (median_step_s or 0.0))
    if any(status.doing in BUSY for status in running):
        limit_s = max(limit_s, BUSY_PATIENCE_S)
    if not any(status.step for status in running):
        limit_s = max(limit_s, START_PATIENCE_S)
    return limit_s


def _sentence(
    idle_s: float,
    median_step_s: float | None,
    behind: tuple[RankStatus, ...],
    statuses: Collection[RankStatus],
) -> str:
    usual_step = "" if median_step_s is None else f" (a step took {median_step_s:.3g} s)"
    sentences = [f"No rank has made a step for {idle_s:.0f} s{usual_step}."]
    sentences += [f"Rank {status.rank} is behind: {_position(status)}." for status in behind[:4]]
    others = sorted((status for status in statuses if status not in behind), key=lambda status: status.rank)
    if others:
        positions = "; ".join(f"rank {status.rank} {_position(status)}" for status in others[:4])
        sentences.append(f"{'Waiting' if behind else 'Positions'}: {positions}.")
    return " ".join(sentences)


def _position(status: RankStatus) -> str:
    if status.ended:
        return f"has ended after step {status.step}"
    frame = users_frame(status.frames)
    at = f"at {frame}" if frame else status.doing or "at an unknown line"
    return f"{at}, after step {status.step}"
