"""The grace period of an attempt that is ended."""

from __future__ import annotations

from db.models import Attempt, Task
from domain.messages import Reason
from domain.spec import RunSpec

GIVEN_UP_S = 10.0
"""The limit after a lost node: ranks that hang in a collective operation cannot save."""


def end_grace_s(attempt: Attempt, spec: RunSpec) -> float:
    """Seconds from the request to end an attempt to SIGKILL."""
    is_given_up = attempt.end_reason == Reason.NODE_LOST and attempt.stop_requested_at is None
    return min(GIVEN_UP_S, spec.stop_grace_s) if is_given_up else spec.stop_grace_s


def part_grace_s(attempt: Attempt, part: Task, spec: RunSpec) -> float:
    """Seconds from the request to end one task to SIGKILL; short for a task that was lost with its node."""
    return min(GIVEN_UP_S, spec.stop_grace_s) if part.lost_at is not None else end_grace_s(attempt, spec)
