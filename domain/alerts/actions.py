"""What an alert may do to a run beside telling of it: end it, or go back to before a spike. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from domain.alerts.rules import Rule, Trigger
from domain.errors import InvalidRequest
from domain.text.formats import number

MOST_ROLLBACKS = 3
"""How often one alert rolls one run back; then it ends it."""
LR_FACTOR = 0.5
"""Times this the learning rate, unless a person chose another factor."""


class Act(StrEnum):
    """What follows when a run meets the rule."""

    END = "end"
    """The run is stopped."""
    ROLLBACK = "rollback"
    """The run goes on from its last checkpoint before, with a lower learning rate."""


HAVE_A_STEP = frozenset({Trigger.SPIKE, Trigger.LOSS_NAN})
"""Conditions that begin at a step, before which a checkpoint is looked for."""
AFTER_THE_END = frozenset({Trigger.FAILED, Trigger.FINISHED})


@dataclass(frozen=True)
class AlertAction:
    """An act, and the factor of the learning rate after a rollback."""

    act: Act
    lr_factor: float = 1.0


@dataclass(frozen=True)
class RateChange:
    """The fields of a spec that change its learning rate, and the change in words."""

    words: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Empty where the rate stays."""


def action(rule: Rule, act: Act | None, lr_factor: float | None) -> AlertAction | None:
    """Check what a rule shall do; None: only tell. Raises InvalidRequest."""
    if lr_factor is not None and act != Act.ROLLBACK:
        raise InvalidRequest("lr_factor", "lr_factor: only a rollback changes the learning rate.")
    if act is None:
        return None
    if rule.condition in AFTER_THE_END:
        raise InvalidRequest("act", f"act: a run that has {rule.condition} has ended; there is nothing to do.")
    if act == Act.END:
        return AlertAction(act)
    if rule.condition not in HAVE_A_STEP:
        raise InvalidRequest(
            "act",
            f"act: {rule.condition} begins at no step to go back to; rollback needs spike or loss-nan.",
        )
    factor = LR_FACTOR if lr_factor is None else lr_factor
    if not 0 < factor <= 1:
        raise InvalidRequest("lr_factor", f"lr_factor must be above 0 and at most 1, got {factor:g}.")
    return AlertAction(act, factor)


def in_words(act: str | None, lr_factor: float | None) -> str | None:
    """ends the run; rolls back with the learning rate × 0.5; None for an alert that only tells."""
    if act is None:
        return None
    if act == Act.END:
        return "ends the run"
    rate = "" if lr_factor in (None, 1.0) else f" with the learning rate × {number(lr_factor or 1.0)}"
    return f"rolls back{rate}"
