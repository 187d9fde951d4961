"""Whether a lower or a higher value of a series is better, judged by the words of its name."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Goal: TypeAlias = Literal["min", "max"]

LOWER = frozenset({"loss", "losses", "error", "err", "perplexity", "ppl", "nll", "mse", "rmse", "mae", "wer", "cer"})
HIGHER = frozenset(
    {"accuracy", "acc", "top1", "top5", "f1", "auc", "auroc", "map", "miou", "iou", "bleu", "precision", "recall",
     "psnr", "ssim", "reward", "rouge", "rouge1", "rouge2", "rougel"}
)  # fmt: skip
VALIDATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "dev", "test"})


def goal(name: str) -> Goal | None:
    """Return `min` for names with loss, error or perplexity, `max` for accuracy-like ones; None where it is unknown."""
    words = _words(name)
    if words & LOWER:
        return "min"
    return "max" if words & HIGHER else None


def _words(name: str) -> set[str]:
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return set(re.split(r"[^a-z0-9]+", spaced.lower())) | {name.rsplit("/", 1)[-1].lower()}


def best(name: str, values: Iterable[float]) -> float | None:
    """Return the best of finite values; None where no direction is known or there are none."""
    aim = goal(name)
    if aim is None:
        return None
    return (min if aim == "min" else max)(values, default=None)


@dataclass(frozen=True)
class BaselineChange:
    """The best value of a run beside that of its project's baseline."""

    run_id: str
    """The baseline's."""
    name: str
    metric: str | None
    """The series that is compared (`main_metric`); None where the two have none in common."""
    value: float | None
    baseline_value: float | None
    better_percent: float | None
    """By how much the run's value is better, in per cent of the baseline's; negative where it is worse."""


def main_metric(names: Collection[str]) -> str | None:
    """The series that says how good a run is: a validation loss, else another validation figure, else a training
    one; None where no name has a goal."""
    return min((name for name in names if goal(name)), key=_importance, default=None)


def _importance(name: str) -> tuple[bool, bool, int, str]:
    words = _words(name)
    return not words & VALIDATION, not words & {"loss", "losses"}, len(name), name


def change_percent(value: float | None, base: float | None) -> float | None:
    """Return the change from `base` in per cent of its size; None where one is missing, infinite or zero."""
    if value is None or base is None or base == 0 or not (math.isfinite(value) and math.isfinite(base)):
        return None
    return 100 * (value - base) / abs(base)


def better_percent(name: str, value: float | None, base: float | None) -> float | None:
    """Return by how much a value of a series is better, in per cent of `base`; None where that is unknown."""
    aim, change = goal(name), change_percent(value, base)
    if aim is None or change is None:
        return None
    return -change if aim == "min" else change
