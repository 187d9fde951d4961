"""Detect a loss that jumps where a run resumed, and name the likely cause. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from domain.checkpoint_use.resuming import ResumePlan
from domain.messages import Finding, Point
from domain.text.formats import learning_rate, number

BEFORE = 50
"""Points up to the checkpoint, whose differences from their neighbours count."""
LEVEL = 20
"""The newest of them, whose median is the level before."""
LEAST_BEFORE = 10
FIRST = 5
"""Points after the resume whose median is compared."""
SETTLED = 3 * FIRST
"""Points after which a loss that is back at its level is none that jumped."""
SPREADS = 5.0
"""How many spreads above the level is a jump; the spread as in `domain.series.divergence`."""
_OF_NEIGHBOURS = 0.9539
"""Median difference of two values of a normal distribution, in its standard deviations."""
LEAST_CHANGE = 0.05
"""Of the level: a loss that hardly varies jumps by more."""


@dataclass(frozen=True)
class ResumedLoss:
    """The main loss around a resume."""

    name: str
    before: Sequence[Point]
    """The last points up to the checkpoint."""
    first: Sequence[Point]
    """The first points of the resumed attempt."""
    last: Sequence[Point]
    """Its last points so far."""
    count: int
    """All of its points so far."""
    has_same_data: bool | None
    """Whether its first samples are those with which the attempt of the checkpoint began; None where unknown."""


def resumed_loss_finding(loss: ResumedLoss, plan: ResumePlan) -> Finding | None:
    """Return the finding where the loss begins far above its level before; None otherwise, or once it is back.

    It stays where the script trains from its beginning: what it learned before is lost."""
    before, first, last = (_finite(points) for points in (loss.before[-BEFORE:], loss.first[:FIRST], loss.last))
    if len(before) < LEAST_BEFORE or len(first) < FIRST:
        return None
    level, bound = median(before[-LEVEL:]), _bound(before)
    is_back = loss.count >= SETTLED and len(last) > 0 and median(last[-FIRST:]) <= bound
    if median(first) <= bound or (is_back and not _begins_again(loss, plan)):
        return None
    meaning, fix = _cause(loss, plan)
    steps = f"{loss.first[0][0]} to {loss.first[FIRST - 1][0]}"
    at = "" if plan.step is None else f", of step {plan.step}"
    return Finding(
        kind=KIND,
        evidence=f"{loss.name} is about {number(median(first))} at steps {steps}, the first after the resume from "
        f"{plan.checkpoint}{at}; up to there it was about {number(level)}.",
        meaning=meaning,
        fix=fix,
    )


KIND = "loss jumps after resume"
FIRST_SAMPLES = "data/first_"
"""With a number behind it the probe's series whose values are digests of so many of an epoch's first samples."""


def _finite(points: Sequence[Point]) -> list[float]:
    return [value for _, value, _ in points if math.isfinite(value)]


def _bound(before: Sequence[float]) -> float:
    """The value above which a loss is no longer at its level; a loss that falls has its spread between neighbours."""
    level = median(before[-LEVEL:])
    around = 1.4826 * median(abs(value - level) for value in before[-LEVEL:])
    between = median(abs(after - value) for value, after in pairwise(before)) / _OF_NEIGHBOURS
    return level + max(SPREADS * max(around, between), LEAST_CHANGE * abs(level))


def _cause(loss: ResumedLoss, plan: ResumePlan) -> tuple[str, str]:
    """Return the likely cause, the surest first, and what to do about it."""
    if _begins_again(loss, plan):
        return (
            f"Its steps begin at {loss.first[0][0]} again, so the script probably did not load the checkpoint.",
            "Load the file or folder that RANKZERO_RESUME (or {resume} in the arguments) names, on every rank, before "
            "the first step.",
        )
    if plan.is_read and "optimizer" not in plan.holds:
        return (
            "The checkpoint holds no optimizer: its averages are lost, and the first steps go in other directions.",
            "Save optimizer.state_dict() beside the model and load it on resuming; else warm up the rate again.",
        )
    if rate := next((one for one in plan.differs if one.field in ("lr", "scaled_lr")), None):
        return (
            f"The learning rate is {_rate(rate.now)}; the checkpoint was written with {_rate(rate.then)}.",
            "Resume with the rate of then, or increase it slowly over some warm-up steps.",
        )
    if other := next((one for one in plan.differs if one.field in _DISTURBING), None):
        return f"{other.label} changed since the checkpoint. {other.means}", "Resume under what it was written under."
    if loss.has_same_data:
        return (
            "The data begin with the samples with which the attempt of the checkpoint began: it reads again what it "
            "had read, in the same order.",
            "Save the position in the data (torchdata's StatefulDataLoader), or skip the batches of the epoch that are "
            "done; call sampler.set_epoch(epoch) with the epoch of the checkpoint.",
        )
    return (
        "Nothing that is known of the checkpoint explains it.",
        "Check that model, optimizer, schedule and gradient scaler are all loaded, on every rank, and that the model "
        "is in train mode; `rankzero resume RUN --dry-run` shows what differs.",
    )


_DISTURBING = ("global_batch_size", "precision", "code", "world_size", "strategy", "seed")


def _begins_again(loss: ResumedLoss, plan: ResumePlan) -> bool:
    """Whether the steps count from their beginning, not from the checkpoint's."""
    (start, _, _), (following, _, _) = loss.first[:2]
    return plan.step is not None and start < plan.step and start <= FIRST * max(1, following - start)


def _rate(value: object) -> str:
    return learning_rate(value) if isinstance(value, float) else "the script's own"
