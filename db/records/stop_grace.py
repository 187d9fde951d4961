"""How long an attempt has to save when it is ended."""

from __future__ import annotations

from db.models import Attempt, Task
from domain.messages import Reason
from domain.spec import RunSpec

GIVEN_UP_S = 10.0
"""For ranks that most likely wait for one that will not come: what hangs in a collective cannot save."""


def end_grace_s(attempt: Attempt, spec: RunSpec) -> float:
    """Seconds from the wish that it ends to SIGKILL."""
    is_given_up = attempt.end_reason == Reason.NODE_LOST and attempt.stop_requested_at is None
    return min(GIVEN_UP_S, spec.stop_grace_s) if is_given_up else spec.stop_grace_s


def part_grace_s(attempt: Attempt, part: Task, spec: RunSpec) -> float:
    """The same for one node's part, which may have been written off while its node was lost."""
    return min(GIVEN_UP_S, spec.stop_grace_s) if part.lost_at is not None else end_grace_s(attempt, spec)
