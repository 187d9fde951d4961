"""Several global batches of a study: throughput, and the loss after the same number of samples. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from domain.scaling.points import MeasuredPoint, named
from domain.series.goals import main_metric
from domain.spec import RunSpec, lr_factor
from domain.text.formats import count, learning_rate, number

GAIN_SHARE = 0.1
"""Share of throughput that a larger global batch must gain; from the first batch on that gains less, it is flat."""
LOSS_SHARE = 0.05
"""Share by which a loss must be higher than with smaller batches to count; also by more than its runs differ."""


@dataclass(frozen=True)
class BatchFigures:
    """One global batch of a study."""

    global_batch_size: int
    lr: float | None
    """The learning rate of its ranks; None where the script sets it."""
    loss: float | None
    """Median over its runs; infinite where most of them diverged, None where they report none."""
    loss_change: float | None
    """Share by which it is higher than the lowest of the smaller batches; None for the first one."""
    is_worse: bool
    """Whether that, or the loss of a smaller batch, is more than LOSS_SHARE and than the differences of its runs."""


@dataclass(frozen=True)
class BatchComparison:
    """The global batches of a study in ascending order."""

    batches: Sequence[BatchFigures]
    loss_name: str | None
    """The series of which the losses are."""
    samples: int
    """Samples after which they were read."""
    rates: Mapping[int, Mapping[int, float]]
    """Samples per second by devices and batch; without devices that are measured with one batch only."""

    @property
    def flat_from(self) -> dict[int, int | None]:
        """Devices -> the batch from which on larger ones gain less than GAIN_SHARE; None where the largest gains."""
        return {devices: _flat_from(of_batch) for devices, of_batch in self.rates.items()}

    @property
    def best(self) -> int | None:
        """On the most devices: the batch from which on throughput is flat, or the largest one whose loss is not worse.

        None where fewer than two are measured."""
        if not self.rates:
            return None
        worse = {one.global_batch_size for one in self.batches if one.is_worse}
        measured = self.rates[max(self.rates)]
        good = [batch for batch in measured if batch not in worse] or [min(measured)]
        return min(_flat_from(measured) or max(good), max(good))

    def sentence(self, kind: str) -> str:
        """Return which batch to choose and why, in one sentence; `kind` of device: cuda or cpu."""
        if self.best is None:
            return "Comparing global batches needs a second one measured on the same devices."
        return f"{self._throughput(kind)}; {self._loss()}: choose {count(self.best)}."

    def _throughput(self, kind: str) -> str:
        devices = max(self.rates)
        on, flat = f"On {named(devices, kind)} ", self.flat_from[devices]
        if flat is None:
            (_, before), (largest, last) = [*self.rates[devices].items()][-2:]
            gain = f"(+{last / before - 1:.0%})"
            return f"{on}throughput still grows with the largest global batch, {count(largest)} {gain}"
        return f"{on}global batches larger than {count(flat)} gain less than {GAIN_SHARE:.0%} throughput"

    def _loss(self) -> str:
        if self.loss_name is None:
            return "the runs report no loss to compare"
        after = f"after {number(self.samples)} samples {self.loss_name} is"
        worse = next((one for one in self.batches if one.is_worse), None)
        if worse is None:
            return f"{after} at most {LOSS_SHARE:.0%} higher with any measured one"
        higher = "not finite" if worse.loss_change == math.inf else f"{worse.loss_change:.0%} higher"
        return f"{after} {higher} with {count(worse.global_batch_size)}"


def reference_batch(spec: RunSpec, batches: Collection[int]) -> int:
    """The global batch to which the spec's learning rate belongs: that of one rank, else the smallest of the study."""
    return spec.batch_size * spec.accumulate if spec.batch_size else min(batches)


def scaled_rate(spec: RunSpec, batch: int, batches: Collection[int]) -> float | None:
    """The learning rate for a global batch by the spec's rule, whatever the number of ranks; None without a rate."""
    if spec.lr is None:
        return None
    return spec.lr * lr_factor(spec.lr_scaling, batch / reference_batch(spec, batches))


def rule_in_words(spec: RunSpec, batches: Collection[int], is_given: bool) -> str:
    """Return how the learning rate follows the global batch; `is_given`: not set by the script itself."""
    if not is_given:
        return "the script's own"
    if spec.lr_scaling == "none":
        return "not scaled"
    return f"{spec.lr_scaling}, {learning_rate(spec.lr)} for {count(reference_batch(spec, batches))}"


def compared(points: Sequence[MeasuredPoint]) -> BatchComparison | None:
    """Compare the global batches of a study; None where it has one, or one for each size."""
    by_batch: dict[int, list[MeasuredPoint]] = {}
    for point in sorted(points, key=lambda one: one.global_batch_size or 0):
        if point.global_batch_size is not None:
            by_batch.setdefault(point.global_batch_size, []).append(point)
    if len(by_batch) < 2:
        return None
    name = _common_loss(by_batch.values())
    samples = min(point.samples or 0 for point in points)
    return BatchComparison(_figures(by_batch, name), name, samples, _rates(points))


def _common_loss(batches: Collection[Sequence[MeasuredPoint]]) -> str | None:
    """The loss that every measured batch has: of a validation, else of the training."""
    names = [
        {name for point in points for run in point.figures for name in run.losses}
        for points in batches
        if any(point.figures for point in points)
    ]
    return main_metric(set.intersection(*names)) if len(names) > 1 else None


def _rates(points: Sequence[MeasuredPoint]) -> dict[int, dict[int, float]]:
    """Samples per second by devices and batch, of devices that are measured at two batches."""
    rates: dict[int, dict[int, float]] = {}
    for point in sorted(points, key=lambda one: (one.devices, one.global_batch_size or 0)):
        if point.figures and point.global_batch_size:
            rates.setdefault(point.devices, {})[point.global_batch_size] = point.rate
    return {devices: of_batch for devices, of_batch in rates.items() if len(of_batch) > 1}


def _flat_from(rates: Mapping[int, float]) -> int | None:
    """The first batch over which no larger one gains enough; None for the last."""
    batches = list(rates)
    for at, batch in enumerate(batches[:-1], start=1):
        if max(rates[larger] for larger in batches[at:]) < (1 + GAIN_SHARE) * rates[batch]:
            return batch
    return None


def _figures(by_batch: Mapping[int, Sequence[MeasuredPoint]], name: str | None) -> list[BatchFigures]:
    figures: list[BatchFigures] = []
    lowest: list[float] = []
    """The losses of the batch so far whose loss is lowest."""
    is_worse = False
    for batch, points in by_batch.items():
        runs = [run for point in points for run in point.figures]
        losses = [run.losses[name] for run in runs if name and name in run.losses]
        loss = median(losses) if losses else None
        change = _change(loss, median(lowest)) if loss is not None and lowest else None
        is_worse = is_worse or (change is not None and _is_worse(losses, lowest))
        figures.append(BatchFigures(batch, points[0].lr, loss, change, is_worse))
        if losses and (not lowest or median(losses) < median(lowest)):
            lowest = losses
    return figures


def _change(loss: float, lowest: float) -> float:
    if not (math.isfinite(loss) and math.isfinite(lowest)) or lowest == 0:
        return math.inf if loss > lowest else 0.0
    return (loss - lowest) / abs(lowest)


def _is_worse(losses: Sequence[float], lowest: Sequence[float]) -> bool:
    """Whether losses are higher than the lowest by more than their share, and than the runs of one batch differ."""
    difference = median(losses) - median(lowest)
    noise = max((max(one) - min(one) for one in (losses, lowest) if all(map(math.isfinite, one))), default=0)
    return difference > max(noise, LOSS_SHARE * abs(median(lowest)))
