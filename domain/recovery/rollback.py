"""Which checkpoints a run leaves behind when it goes back to before a spike of its loss. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict


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
