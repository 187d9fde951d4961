"""Whether a lower or a higher value of a series is better, and which names of series mean the same figure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
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


# Series that are the same figure under the names of different loggers, so that runs are compared in one chart.

PRINTED = "printed/"
TRAIN = "train/"


def joined_names(by_run: Mapping[str, Collection[str]]) -> dict[str, dict[str, str]]:
    """Return what the series of each run are called among those of the others, where that is not their own name.

    `printed/loss` of one run is `loss` of another, unless one of the two has both; `train/loss` is `loss` where none
    of the runs has both."""
    own = {run: _by_figure(names) for run, names in by_run.items()}
    bare = {figure for of_run in own.values() for figure in of_run}
    for figure in [name.removeprefix(TRAIN) for name in bare if name.startswith(TRAIN)]:
        if figure in bare and not any({figure, TRAIN + figure} <= of_run.keys() for of_run in own.values()):
            own = {run: _called(of_run, TRAIN + figure, figure) for run, of_run in own.items()}
    joined: dict[str, dict[str, str]] = {}
    for figure in {figure for of_run in own.values() for figure in of_run}:
        names = {run: of_run[figure] for run, of_run in own.items() if figure in of_run}
        shown = _shown(list(names.values()))
        for run, name in names.items():
            if name != shown:
                joined.setdefault(run, {})[name] = shown
    return joined


def _by_figure(names: Collection[str]) -> dict[str, str]:
    """The names by what they are without their logger; of two, the one that is logged rather than printed."""
    return {name.removeprefix(PRINTED): name for name in sorted(names, key=lambda n: not n.startswith(PRINTED))}


def _called(by_figure: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    return {new if figure == old else figure: name for figure, name in by_figure.items()}


def _shown(names: Collection[str]) -> str:
    """The one name of all; else, without its logger, the one that most runs have, and of equals the shortest."""
    if len(set(names)) == 1:
        return next(iter(names))
    counts = Counter(name.removeprefix(PRINTED) for name in names)
    return max(counts, key=lambda name: (counts[name], -len(name), name))
