"""Say how long a launch will take, from earlier runs of the same code. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.launch import plan
from domain.spec import RunSpec
from domain.text.formats import count, time_span

MOST = 3
"""Earlier runs that are compared, the newest."""
NUMBERS = {1: "run", 2: "two runs", 3: "three runs"}


@dataclass(frozen=True)
class EarlierRun:
    """A run that succeeded in one attempt."""

    run_id: str
    spec: RunSpec
    took_s: float
    """From its placement to its end."""


@dataclass(frozen=True)
class Expected:
    """How long a launch will take, as far as earlier runs tell."""

    low_s: float
    high_s: float
    like: list[str]
    """The ids of the runs that it is compared with, the newest first."""
    sentence: str
    """Like its last three runs: 12 to 14 min."""


def expected(spec: RunSpec, earlier: Sequence[EarlierRun]) -> Expected | None:
    """Return how long a spec will take, by earlier runs, the newest first; None where none is comparable.

    Those of the same code on as many devices count, for the same steps or epochs; where there are none, those for
    other ones, scaled."""
    comparable = [run for run in earlier if is_same_code(spec, run.spec) and _devices(spec) == _devices(run.spec)]
    if alike := [run for run in comparable if _length(run.spec) == _length(spec)][:MOST]:
        return _expected([run.took_s for run in alike], alike, "")
    factors = [(run, factor) for run in comparable if (factor := _factor(spec, run.spec)) is not None][:MOST]
    if not factors:
        return None
    steps, epochs = _length(spec)
    work = f", for {f'{count(steps)} steps' if steps else f'{count(epochs)} epochs'}"
    return _expected([run.took_s * factor for run, factor in factors], [run for run, _ in factors], work)


def is_same_code(spec: RunSpec, other: RunSpec) -> bool:
    """Whether two specs train with the same program and options, whatever their values."""
    is_same_target = spec.target == other.target or (spec.snapshot is not None and spec.snapshot == other.snapshot)
    is_same_start = (spec.entry, spec.module) == (other.entry, other.module)
    return is_same_target and is_same_start and plan.option_names(spec.args) == plan.option_names(other.args)


def _expected(times_s: Sequence[float], runs: Sequence[EarlierRun], work: str) -> Expected:
    low_s, high_s = min(times_s), max(times_s)
    sentence = f"Like its last {NUMBERS[len(runs)]}{work}: {_span(low_s, high_s)}."
    return Expected(low_s, high_s, [run.run_id for run in runs], sentence)


def _span(low_s: float, high_s: float) -> str:
    """12 to 14 min, 50 s to 2 min, 12 min."""
    low, high = time_span(low_s), time_span(high_s)
    if low == high:
        return high
    unit = f" {high.rpartition(' ')[2]}"
    return f"{low.removesuffix(unit)} to {high}"


def _devices(spec: RunSpec) -> int:
    return spec.nodes * (spec.gpus_per_node or 1)


def _length(spec: RunSpec) -> tuple[int | None, int | None]:
    """The steps and epochs that a spec asks for, by its fields or the usual options."""
    steps = plan.total_steps(spec.args) if spec.max_steps is None else spec.max_steps
    return steps, plan.total_epochs(spec.args) if spec.epochs is None else spec.epochs


def _factor(spec: RunSpec, other: RunSpec) -> float | None:
    """How many times the steps, or without steps the epochs, of the other a spec has; None where one is unknown."""
    (steps, epochs), (other_steps, other_epochs) = _length(spec), _length(other)
    if steps and other_steps:
        return steps / other_steps
    has_steps = steps or other_steps
    return epochs / other_epochs if epochs and other_epochs and not has_steps else None
