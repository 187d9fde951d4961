"""The restart policy: whether a failed run gets another attempt without anybody asking for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.messages import Reason
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
