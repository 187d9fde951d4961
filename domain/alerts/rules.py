"""Alert rules in words: a condition, some with a limit or a series: `failed`, `waits=30m`, `spike:val/loss`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from domain.errors import InvalidRequest

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


LIMITS = {Trigger.WAITS: "30m", Trigger.DISK_FULL: "2h", Trigger.NO_IMPROVEMENT: "500"}
"""Conditions that need a limit, each with an example."""
ON_SERIES = frozenset({Trigger.SPIKE, Trigger.NO_IMPROVEMENT})
FROM_POINTS = ON_SERIES | {Trigger.DISK_FULL}
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
    if condition in (Trigger.WAITS, Trigger.DISK_FULL):
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
