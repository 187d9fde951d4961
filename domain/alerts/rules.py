"""Alert rules in words: a condition, some with a limit or a series: `failed`, `waits=30m`, `spike:val/loss`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from domain.requests.errors import InvalidRequest
from domain.text.formats import number

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_S = 30 * 86_400.0
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhd])", re.ASCII)


class Trigger(StrEnum):
    """A condition of a run that people are alerted to."""

    FAILED = "failed"
    """It failed, and no automatic restart follows."""
    FINISHED = "finished"
    """It succeeded."""
    HUNG = "hung"
    """Its ranks make no step."""
    LOSS_NAN = "loss-nan"
    """Its loss is not a number."""
    WAITS = "waits"
    """It has been in the queue for longer than the limit."""
    DISK_FULL = "disk-full"
    """The disk of one of its nodes is full in less than the limit."""
    SPIKE = "spike"
    """A series rises far above its last values."""
    NO_IMPROVEMENT = "no-improvement"
    """A series has not fallen for as many steps as the limit."""
    IDLE_GPU = "idle-gpu"
    """One of its GPUs has computed nothing for as long as the limit."""
    QUARANTINE = "quarantine"
    """A node or a device was put in quarantine: about hardware, not about a run."""


LIMITS = {Trigger.WAITS: "30m", Trigger.DISK_FULL: "2h", Trigger.NO_IMPROVEMENT: "500", Trigger.IDLE_GPU: "30m"}
"""Conditions that need a limit, each with an example."""
ON_SERIES = frozenset({Trigger.SPIKE, Trigger.NO_IMPROVEMENT})
FROM_POINTS = ON_SERIES | {Trigger.DISK_FULL, Trigger.IDLE_GPU}
"""Judged from points, while the run trains."""
MOST_STEPS = 10**12


@dataclass(frozen=True)
class Rule:
    """A condition and its limit."""

    condition: Trigger
    limit: float | None = None
    """Seconds, or steps."""
    series: str | None = None
    """Its name; None: the training loss."""


def parse_rule(text: str) -> Rule:
    """Read a rule as people write it. Raises InvalidRequest."""
    words, _, series_name = text.strip().partition(":")
    name, _, limit = words.partition("=")
    series = series_name or None
    if name not in {*Trigger}:
        raise InvalidRequest("rule", f"rule must be one of {', '.join(Trigger)}, got {name[:40]!r}.")
    condition = Trigger(name)
    if series is not None and condition not in ON_SERIES:
        raise InvalidRequest("rule", f"rule: {name} is about the run, not about a series; write no `:` after it.")
    if condition in (Trigger.WAITS, Trigger.DISK_FULL, Trigger.IDLE_GPU):
        return Rule(condition, _seconds(condition, limit), series)
    if condition == Trigger.NO_IMPROVEMENT:
        return Rule(condition, _steps(condition, limit), series)
    if limit:
        raise InvalidRequest("rule", f"rule: {name} takes no limit; write `{name}`.")
    return Rule(condition, None, series)


def _seconds(condition: Trigger, text: str) -> float:
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * UNITS_S[match[2]] if match else 0.0
    if not 0 < seconds <= LONGEST_S:
        raise InvalidRequest(
            "rule",
            f"rule: {condition} needs a duration of at most 30 days, as in {condition}={LIMITS[condition]}.",
        )
    return seconds


def _steps(condition: Trigger, text: str) -> float:
    steps = int(text) if re.fullmatch(r"\d{1,12}", text, re.ASCII) else 0
    if not 0 < steps < MOST_STEPS:
        raise InvalidRequest("rule", f"rule: {condition} needs a number of steps, as in {condition}=500.")
    return float(steps)


# What an alert may do to a run beside telling of it: end it, or go back to before a spike. Pure.

MOST_ROLLBACKS = 3
"""How often one alert rolls one run back; then it ends it."""
LR_FACTOR = 0.5
"""Times this the learning rate, unless a person chose another factor."""


class Act(StrEnum):
    """What follows when a run meets the rule."""

    END = "end"
    """The run is stopped."""
    ROLLBACK = "rollback"
    """The run continues from its last checkpoint before, with a lower learning rate."""


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
    if rule.condition == Trigger.QUARANTINE:
        raise InvalidRequest("act", "act: quarantine is about hardware, not about a run; there is nothing to do.")
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


def act_in_words(act: str | None, lr_factor: float | None) -> str | None:
    """ends the run; rolls back with the learning rate × 0.5; None for an alert that only tells."""
    if act is None:
        return None
    if act == Act.END:
        return "ends the run"
    rate = "" if lr_factor in (None, 1.0) else f" with the learning rate × {number(lr_factor or 1.0)}"
    return f"rolls back{rate}"
