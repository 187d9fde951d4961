"""Watch a run's losses: detect values that are not finite, and losses that diverge or do not change."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from domain.messages import Finding, Point
from domain.series import divergence
from domain.series.divergence import Divergence
from domain.text import formats

ENDS_KEPT = 50
"""Points remembered from the beginning and from the end, for a comparison in runs of any length."""
CONSTANT_POINTS = 20
FLAT_POINTS = 3 * ENDS_KEPT
"""Minimum number of points before a loss counts as flat."""
FLAT_CHANGE = 0.01
FLAT_STANDARD_ERRORS = 3.0
_LOSS = re.compile(r"(?:^|[^a-z])loss(?:[^a-z]|$)", re.IGNORECASE)
_TRAINING_LOSS = re.compile(r"(?:train(?:ing)?[/_.])?loss(?:[/_.](?:train|step))?$", re.IGNORECASE)
_REWARD = re.compile(r"reward|return(?:s|$|[/_])|ep_rew|episode", re.IGNORECASE)
_PRINTED = "printed/"

Number = Annotated[float, Field(allow_inf_nan=True)]


class Loss(BaseModel):
    """The state remembered of one loss."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    count: int = 0
    first: list[Number] = []
    last: list[Number] = []
    first_step: int = 0
    last_step: int = 0
    last_number: Number | None = None
    last_number_step: int = 0
    broken_since: int | None = None
    """First step of the trailing values that are all NaN or one infinity."""
    broken_value: Number = math.nan
    broken_points: int = 0
    divergence: Divergence | None = None
    """None for one that may well rise: a validation's, or that of a policy whose rewards change."""

    def take(self, points: Sequence[Point]) -> None:
        """Add newer points in the order in which they were logged."""
        for step, value, _ in points:
            self.first_step = step if not self.count else self.first_step
            self.count, self.last_step = self.count + 1, step
            if len(self.first) < ENDS_KEPT:
                self.first.append(value)
            self.last = [*self.last[1 - ENDS_KEPT :], value]
            self._track_finiteness(step, value)
            if self.divergence is not None:
                self.divergence.take(step, value)

    def _track_finiteness(self, step: int, value: float) -> None:
        if math.isfinite(value):
            self.last_number, self.last_number_step = value, step
            self.broken_since, self.broken_points = None, 0
            return
        self.broken_since = formats.not_finite_since(value, step, self.broken_value, self.broken_since)
        self.broken_value = value
        self.broken_points += 1


class LossWatch(BaseModel):
    """The losses of an attempt on one node; a JSON document, so that a restarted worker continues."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    is_fresh: bool = True
    """The attempt trains from the beginning; one that resumes from a checkpoint may be flat."""
    losses: dict[str, Loss] = {}
    has_rewards: bool = False
    """Whether it learns from rewards: then a loss rises as they do."""

    def take(self, series: Mapping[str, Sequence[Point]], source: str) -> None:
        """Add new points of any series; ignore those that are no loss."""
        for tag, points in series.items():
            name = f"{_PRINTED}{tag}" if source == "printed" else tag
            if source in ("probe", "hardware"):
                continue
            self.has_rewards = self.has_rewards or _REWARD.search(tag) is not None
            if _LOSS.search(tag):
                if name not in self.losses:
                    self.losses[name] = Loss(divergence=Divergence() if _is_training(name) else None)
                self.losses[name].take(points)

    def findings(self) -> list[Finding]:
        """Return the findings for the losses now."""
        losses = {name: loss for name, loss in self.losses.items() if self._is_relevant(name)}
        broken = [(name, loss) for name, loss in losses.items() if loss.broken_points >= 2]
        flat = [finding for name, loss in losses.items() if (finding := self._check_flat(name, loss))]
        diverged = [] if broken or self.has_rewards else [
            _diverges_finding(name, loss.divergence)
            for name, loss in losses.items()
            if loss.divergence is not None and loss.divergence.is_certain
        ]  # fmt: skip
        return ([_not_finite_finding(broken)] if broken else []) + diverged[:1] + flat[:1]

    def _is_relevant(self, name: str) -> bool:
        """Whether the loss is logged, or printed in a run that logs none."""
        is_logged = any(not loss_name.startswith(_PRINTED) for loss_name in self.losses)
        return not (is_logged and name.startswith(_PRINTED))

    def _check_flat(self, name: str, loss: Loss) -> Finding | None:
        if not self.is_fresh or not _is_training(name):
            return None
        values = loss.first + loss.last
        if not all(map(math.isfinite, values)):
            return None
        if loss.count >= CONSTANT_POINTS and max(values) == min(values):
            return _flat_finding(f"{name} is {values[0]:.6g} at each of the {loss.count} points it has so far.")
        if loss.count >= FLAT_POINTS and (change := _flat_change(loss.first, loss.last)) is not None:
            return _flat_finding(
                f"{name} was {statistics.fmean(loss.first):.5g} on average over its first {ENDS_KEPT} points "
                f"(from step {loss.first_step}) and is {statistics.fmean(loss.last):.5g} over its last "
                f"{ENDS_KEPT} (to step {loss.last_step}): it changed by {100 * change:.2g} %, less than its "
                "random variation."
            )
        return None


def _diverges_finding(name: str, loss: Divergence) -> Finding:
    return Finding(
        kind=divergence.KIND,
        evidence=divergence.evidence_of(name, loss),
        meaning="The updates are too large: the model has lost what it had learned, and so have checkpoints saved "
        "since then.",
        fix="Stop the run and resume from a checkpoint before that step with a lower learning rate, a longer warm-up "
        "or clipped gradients (torch.nn.utils.clip_grad_norm_).",
    )


def _is_training(name: str) -> bool:
    return _TRAINING_LOSS.match(name.removeprefix(_PRINTED)) is not None


def _flat_change(first: Sequence[float], last: Sequence[float]) -> float | None:
    """Return the relative change of the mean if it is below 1 % and below three standard errors, else None."""
    before, after = statistics.fmean(first), statistics.fmean(last)
    error = math.sqrt(statistics.variance(first) / len(first) + statistics.variance(last) / len(last))
    change = abs(after - before)
    is_flat = change < FLAT_CHANGE * abs(before) and change < FLAT_STANDARD_ERRORS * error
    return change / abs(before) if is_flat else None


def _not_finite_finding(broken: Sequence[tuple[str, Loss]]) -> Finding:
    name, loss = min(broken, key=lambda named_loss: named_loss[1].broken_since or 0)
    value = formats.not_finite_in_words(loss.broken_value, loss.broken_since)
    before = (
        f" The last number was {loss.last_number:.5g} at step {loss.last_number_step}."
        if loss.last_number is not None
        else " It was never a number."
    )
    others = f" Others too: {', '.join(tag for tag, _ in broken if tag != name)}." if len(broken) > 1 else ""
    return Finding(
        kind="loss is not a number",
        evidence=f"{name} is {value}.{before}{others}",
        meaning="The parameters have most likely been invalid since then: the model no longer learns, and "
        "checkpoints saved since then are useless.",
        fix="Stop the run and resume from a checkpoint before that step with a lower learning rate, longer "
        "warm-up or clipped gradients (torch.nn.utils.clip_grad_norm_); look for a logarithm or a division by "
        "zero, and for bad samples (torch.autograd.set_detect_anomaly(True) names the operation).",
    )


def _flat_finding(evidence: str) -> Finding:
    return Finding(
        kind="loss has not moved",
        evidence=evidence,
        meaning="The model is not learning: the updates are too small, or do not reach its parameters.",
        fix="Check that loss.backward() and optimizer.step() are called, that the optimizer was given this "
        "model's parameters and they require gradients, that labels match samples, and that the learning "
        "rate is not zero or far too small.",
    )
