"""Whether a failed run goes on by its own policy, so that nobody has to be awake for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.messages import Reason
from domain.spec import RunSpec

HANGS_IN_A_ROW = 3
"""A run that hangs so often in a row would do so for ever."""


WOULD_REPEAT = frozenset({Reason.SCRIPT_MISSING, Reason.LAUNCH_FAILED, Reason.RESUME_FAILED})
"""Failures that another attempt certainly meets again."""


FIRST_PAUSE_S = 5.0


LONGEST_PAUSE_S = 300.0


@dataclass(frozen=True)
class FailedAttempt:
    """A failed attempt, as far as it matters for whether another one may do better."""

    reason: str | None
    sentence: str
    key: tuple[object, ...] = ()
    """What is the same when the same failure comes again."""
    has_stepped: bool = True
    """It made a step beyond the checkpoint it started from."""
    restarts: int = 0


@dataclass(frozen=True)
class Restart:
    """The next attempt is opened."""

    why: str
    restarts: int
    pause_s: float = 0.0


@dataclass(frozen=True)
class Leave:
    """The run stays failed; None where nobody expects anything else."""

    why: str | None = None


def what_follows(spec: RunSpec, failures: Sequence[FailedAttempt]) -> Restart | Leave:
    """Pure. `failures`: the newest first, back to what did not fail."""
    newest = failures[0]
    if newest.reason == Reason.HUNG and spec.on_hang == "resume":
        return _after_hang(failures)
    if newest.reason == Reason.NODE_LOST and spec.elastic:
        return Restart(f"goes on with the nodes there are: {newest.sentence}", newest.restarts)
    if not spec.max_restarts:
        return Leave()
    if newest.reason in WOULD_REPEAT:
        return Leave("not restarted: another attempt would fail in the same way")
    if newest.restarts >= spec.max_restarts:
        return Leave(f"not restarted: {newest.restarts} of {spec.max_restarts} restarts are used")
    if _is_the_same_again(failures):
        return Leave("not restarted: it failed as before, without a step beyond what it started from")
    count = newest.restarts + 1
    why = f"restarted ({count} of {spec.max_restarts}): {newest.sentence}"
    return Restart(why, count, _pause_s(failures))


def _after_hang(failures: Sequence[FailedAttempt]) -> Restart | Leave:
    in_a_row = failures[:HANGS_IN_A_ROW]
    if len(in_a_row) == HANGS_IN_A_ROW and all(each.reason == Reason.HUNG for each in in_a_row):
        return Leave(f"not resumed: it hung {HANGS_IN_A_ROW} times in a row")
    return Restart("resumed after a hang", failures[0].restarts)


def _is_the_same_again(failures: Sequence[FailedAttempt]) -> bool:
    """A node that is lost is no fault of the run: it may happen again and again."""
    newest, *before = failures
    if newest.reason == Reason.NODE_LOST or newest.has_stepped or not before:
        return False
    return newest.key == before[0].key


def _pause_s(failures: Sequence[FailedAttempt]) -> float:
    """Nothing after an attempt that got somewhere or lost a node, else longer each time."""
    futile = 0
    for each in failures:
        if each.has_stepped or each.reason == Reason.NODE_LOST:
            break
        futile += 1
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (futile - 1)) if futile else 0.0
