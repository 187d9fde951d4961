"""Pure: tells a rank that hangs from one that is slow or busy, and which rank the others wait for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

PATIENCE_S = 60.0
PATIENCE_STEPS = 10
BUSY_PATIENCE_S = 1800.0
"""Saving, validating and compiling may take long, but a hang in them is a hang in the end."""
START_PATIENCE_S = 600.0
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
    """Where a rank is, by its last line."""

    rank: int
    pid: int
    world_size: int = 1
    step: int = 0
    """Optimizer steps this process has made."""
    last_step_at: float | None = None
    first_seen_at: float = 0.0
    seen_at: float = 0.0
    doing: str = ""
    """starting, stepping, data, computing, backward, waiting, validating, saving or compiling."""
    stacks: bool = False
    """It answers when it is asked for its stack."""
    ended: bool = False
    frames: tuple[PythonFrame, ...] = ()
    """The user's own lines, the innermost first, when it has not stepped for a while."""

    @property
    def moved_at(self) -> float:
        """When it last made a step, or was first seen."""
        return self.last_step_at or self.first_seen_at


@dataclass(frozen=True)
class HangVerdict:
    """The ranks have stopped stepping."""

    since: float
    idle_s: float
    behind: tuple[RankStatus, ...]
    """Those the others wait for; empty when nothing tells them apart."""
    sentence: str


def users_frame(frames: Iterable[PythonFrame]) -> PythonFrame | None:
    """The innermost frame in the user's own code, else the innermost one."""
    known = list(frames)
    return next((frame for frame in known if not _LIBRARY.search(frame.file)), known[0] if known else None)


def who_is_behind(statuses: Collection[RankStatus]) -> list[RankStatus]:
    """The ranks that the others wait for: with fewer steps, or not waiting where others are."""
    fewest = min((each.step for each in statuses), default=0)
    behind = [each for each in statuses if each.step == fewest]
    if len(behind) == len(statuses):
        behind = [each for each in statuses if each.doing not in WAITING and not each.ended]
    return sorted(behind, key=lambda each: each.rank) if len(behind) < len(statuses) else []


def hang_verdict(
    statuses: Collection[RankStatus],
    now: float,
    median_step_s: float | None,
    patience_s: float | None = None,
) -> HangVerdict | None:
    """None while some rank still steps, or may be expected to take this long."""
    living = [each for each in statuses if not each.ended]
    if not living:
        return None
    since = max(each.moved_at for each in living)
    if now - since <= _limit_s(living, median_step_s, patience_s):
        return None
    behind = tuple(who_is_behind(statuses))
    sentence = _sentence(now - since, median_step_s, behind, statuses)
    return HangVerdict(since, now - since, behind, sentence)


def _limit_s(living: list[RankStatus], median_step_s: float | None, patience_s: float | None) -> float:
    limit_s = patience_s
    if limit_s is None:
        limit_s = max(PATIENCE_S, PATIENCE_STEPS * (median_step_s or 0.0))
    if any(each.doing in BUSY for each in living):
        limit_s = max(limit_s, BUSY_PATIENCE_S)
    if not any(each.step for each in living):
        limit_s = max(limit_s, START_PATIENCE_S)
    return limit_s


def _sentence(
    idle_s: float,
    median_step_s: float | None,
    behind: tuple[RankStatus, ...],
    statuses: Collection[RankStatus],
) -> str:
    usual = "" if median_step_s is None else f" (a step took {median_step_s:.3g} s)"
    words = [f"No rank has made a step for {idle_s:.0f} s{usual}."]
    words += [f"Rank {each.rank} is behind: {_place(each)}." for each in behind[:4]]
    others = sorted((each for each in statuses if each not in behind), key=lambda each: each.rank)
    if others:
        listed = "; ".join(f"rank {each.rank} {_place(each)}" for each in others[:4])
        words.append(f"{'Waiting' if behind else 'They stand'}: {listed}.")
    return " ".join(words)


def _place(status: RankStatus) -> str:
    if status.ended:
        return f"has ended after step {status.step}"
    frame = users_frame(status.frames)
    at = f"at {frame}" if frame else status.doing or "at an unknown line"
    return f"{at}, after step {status.step}"
