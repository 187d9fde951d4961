"""Judge whether a run meets a rule: each event has a key, by which it is recorded once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

from domain.alerts.rules import Rule, Trigger
from domain.messages import LIVE_STATES, Point, State
from domain.text.formats import duration_words, number, size
from domain.views import Quarantine

FINDINGS = {Trigger.HUNG: "hung", Trigger.LOSS_NAN: "loss is not a number"}
"""The kinds of findings that conditions are read from."""


@dataclass(frozen=True)
class OpenFinding:
    """A finding that persists."""

    kind: str
    evidence: str
    first_at: float


@dataclass(frozen=True)
class RunFacts:
    """The latest attempt of a run, as far as rules depend on it."""

    run_id: str
    name: str
    project: str
    attempt: int
    fence: int
    state: State
    message: str | None
    """Why it ended."""
    created_at: float
    """When the attempt was requested: its time in the queue begins."""
    ended_at: float | None
    waiting_for: str | None
    findings: tuple[OpenFinding, ...] = ()
    by: str | None = None
    """Whose run it is."""


@dataclass(frozen=True)
class RunEvent:
    """A run that meets a rule."""

    key: str
    """Identifies it for this rule: the run, its attempt, and what began when."""
    run_id: str | None
    """None in a test, and where the event is about hardware."""
    at: float
    sentence: str
    good: Point | None = None
    """The last good point before, where the event begins at a point."""
    fence: int | None = None
    """The attempt, where the event is about a run."""


def events(rule: Rule, run: RunFacts, since: float, now: float) -> Iterator[RunEvent]:
    """Yield the events of one run; ends before `since`, when the rule was set, do not count.

    A condition that lasts counts as long as it holds, whenever it began."""
    if rule.condition in (Trigger.FAILED, Trigger.FINISHED):
        yield from _end(rule.condition, run, since)
    elif rule.condition in FINDINGS and run.state in LIVE_STATES:
        for finding in run.findings:
            if finding.kind == FINDINGS[rule.condition]:
                key, sentence = f"{finding.first_at!r}", f"{run.name}: {finding.kind}: {finding.evidence}"
                yield _event(run, key, finding.first_at, sentence)
    elif rule.condition == Trigger.WAITS and run.state == State.QUEUED:
        yield from _wait(rule, run, now)


def _end(condition: Trigger, run: RunFacts, since: float) -> Iterator[RunEvent]:
    state = State.FAILED if condition == Trigger.FAILED else State.SUCCEEDED
    if run.state == state and run.ended_at is not None and run.ended_at >= since:
        reason = f": {run.message}" if run.message else "."
        yield _event(run, None, run.ended_at, f"{run.name} {state}{reason}")


def _wait(rule: Rule, run: RunFacts, now: float) -> Iterator[RunEvent]:
    assert rule.limit is not None
    if now - run.created_at >= rule.limit:
        reason = f": {run.waiting_for}" if run.waiting_for else "."
        sentence = f"{run.name} has waited for {duration_words(now - run.created_at)} in the queue{reason}"
        yield _event(run, None, now, sentence)


def spikes(
    run: RunFacts, series: str, points: Sequence[Point], count: int, total: float, since: float
) -> Iterator[RunEvent]:
    """Yield the spikes of a curve from a time on; `count`, `total`: of all its finite values."""
    for good, (step, value, wall) in spikes_in(points, count, total):
        if wall >= since:
            sentence = f"{run.name}: {series} jumped to {number(value)} at step {step}."
            yield replace(_event(run, f"{series}/{step}", wall, sentence), good=good)


def standstill(run: RunFacts, series: str, points: Sequence[Point], limit: float, now: float) -> Iterator[RunEvent]:
    """Yield the event of a curve that has not improved for `limit` steps."""
    step = best_step(points, int(limit))
    if step is not None:
        sentence = f"{run.name}: {series} has not improved since step {step}; it is at step {points[-1][0]}."
        yield _event(run, f"{series}/{step}", now, sentence)


def filling_disk(
    run: RunFacts, node: str, node_rank: int, free_bytes: int, growth: float, limit: float, now: float
) -> Iterator[RunEvent]:
    """Yield the event of a node's disk that is full in less than `limit` seconds, if it grows on (bytes per second)."""
    left_s = free_bytes / growth
    if left_s < limit:
        sentence = (
            f"{run.name}: the disk of {node} is full in about {duration_words(left_s)}: {size(free_bytes)} are free, "
            f"and {size(int(growth * 3600))} more are used every hour."
        )
        yield _event(run, f"disk/{node_rank}", now, sentence)


def _event(run: RunFacts, subject: str | None, at: float, sentence: str) -> RunEvent:
    key = f"{run.run_id}/{run.attempt}" + (f"/{subject}" if subject else "")
    return RunEvent(key, run.run_id, at, sentence, fence=run.fence)


# Find spikes in a curve, and the step since which it has not improved. Smaller values are better. Pure.

BEFORE = 50
"""Points before a spike that it is compared with."""
IN_A_ROW = 3
"""Points that all lie above: a single batch may be hard."""
SPREADS = 8.0
"""How many spreads above the median of the points before; the spread is the usual distance from that median."""
RATIO = 1.5
"""How many times that median, where it is positive."""
PRECISION = 1e-9
"""Of a difference of sums: what is smaller in proportion is noise of the arithmetic."""
SMOOTHING = 10
"""A tenth of the points of the limit are averaged before they count as an improvement."""


def spikes_in(points: Sequence[Point], count: int, total: float) -> list[tuple[Point, Point]]:
    """The last point before each spike, and its first: IN_A_ROW points far above those before them and above the
    mean of the run so far.

    `points`: the end of the curve; `count`, `total`: number and sum of the finite values of the whole curve. One
    with fewer than BEFORE points before has no spike."""
    finite = [point for point in points if math.isfinite(point[1])]
    values = [value for _, value, _ in finite]
    spikes, was_above = [], True  # what precedes the first point that can be judged is unknown
    earlier_count, so_far = _head(values, count, total)
    so_far += sum(values[:BEFORE])
    for start in range(BEFORE, len(values) - IN_A_ROW + 1):
        following = min(values[start : start + IN_A_ROW])
        is_above = following > so_far / (earlier_count + start) and following > _bound(values[start - BEFORE : start])
        if is_above and not was_above:
            spikes.append((finite[start - 1], finite[start]))
        was_above = is_above
        so_far += values[start]
    return spikes


def _head(values: Sequence[float], count: int, total: float) -> tuple[int, float]:
    """Number and sum of the values before these; 0 where the sum is lost in a curve that has grown beyond measure."""
    head = total - sum(values)
    is_lost = abs(head) <= PRECISION * sum(map(abs, values))
    return (0, 0.0) if is_lost or count <= len(values) else (count - len(values), head)


def best_step(points: Sequence[Point], limit: int) -> int | None:
    """The step of the best value, where the curve has not improved for `limit` steps since; None where it has.

    Values are trailing means, so that one lucky batch is no improvement that later ones must beat."""
    finite = [point for point in points if math.isfinite(point[1])]
    if not finite or finite[-1][0] - finite[0][0] < 2 * limit:
        return None
    last_step = finite[-1][0]
    width = max(1, sum(1 for step, _, _ in finite if step > last_step - limit) // SMOOTHING)
    smoothed = [
        (fmean(value for _, value, _ in finite[end - width : end]), finite[end - 1][0])
        for end in range(width, len(finite) + 1)
    ]
    _, step = min(smoothed)
    return step if last_step - step >= limit else None


def _bound(values: Sequence[float]) -> float:
    middle = median(values)
    spread = max(1.4826 * median(abs(value - middle) for value in values), 0.01 * abs(middle))
    return max(middle + SPREADS * spread, RATIO * middle)


# Estimate when a disk is full, from how fast it filled lately. Pure.

WINDOW_S = 1800.0
LEAST_S = 600.0
"""Samples of a shorter time say nothing."""
PARTS = 3
"""Growth counts only as far as it goes on in each part of the window: a checkpoint that is written now and then, and
replaced by the next one, fills no disk."""
FRESH_S = 120.0


def growth_bytes_per_s(samples: Sequence[tuple[float, float]], now: float) -> float | None:
    """How fast a disk fills in the slowest part of the last half hour, from samples (wall time, bytes used), oldest
    first; None where it does not fill, or the samples are too few, too short or too old to say."""
    recent = [sample for sample in samples if sample[0] >= now - WINDOW_S]
    if not recent or now - recent[-1][0] > FRESH_S or recent[-1][0] - recent[0][0] < LEAST_S:
        return None
    start, length = recent[0][0], (recent[-1][0] - recent[0][0]) / PARTS
    borders = [recent[0]]
    for part in range(1, PARTS):
        borders.append(next(sample for sample in recent if sample[0] >= start + part * length))
    borders.append(recent[-1])
    if any(after[0] - before[0] < length / 2 for before, after in pairwise(borders)):
        return None  # there are gaps
    slowest = min((after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(borders))
    return slowest if slowest > 0 else None


# Find GPUs that a run has and does not use. Pure.

IDLE_PERCENT = 1.0
"""Utilisation up to this is none: drivers report one per cent of nothing."""
LONGEST_GAP_S = 60.0
"""Between two samples; what was in a longer one is unknown."""


@dataclass(frozen=True)
class GpuUse:
    """How a GPU of a run was used lately."""

    node: str
    node_rank: int
    position: int
    """Among the run's GPUs of that node."""
    samples: Sequence[tuple[float, float]]
    """Wall time and utilisation in per cent, oldest first."""
    processes: float | None = None
    """How many processes of the run are on it; None where the driver does not tell."""


def idle_gpu(run: RunFacts, gpu: GpuUse, limit: float, now: float) -> Iterator[RunEvent]:
    """Yield the event of a GPU that has computed nothing for `limit` seconds, each of which was sampled."""
    if not is_idle(gpu.samples, limit, now):
        return
    no_rank = "no process of the run is on it" if gpu.processes == 0 else "its ranks compute nothing there"
    sentence = (
        f"{run.name}: GPU {gpu.position} of the run on {gpu.node} has been idle for {duration_words(limit)}: {no_rank}."
    )
    yield _event(run, f"idle/{gpu.node_rank}/{gpu.position}", now, sentence)


def is_idle(samples: Sequence[tuple[float, float]], limit: float, now: float) -> bool:
    """Whether all samples of the last `limit` seconds say so; False where any time of these is unknown."""
    before = [at for at, _ in samples if at <= now - limit]
    recent = [sample for sample in samples if sample[0] > now - limit]
    if not before or not recent or any(percent > IDLE_PERCENT for _, percent in recent):
        return False
    moments = [before[-1], *(at for at, _ in recent), now]
    return all(later - earlier <= LONGEST_GAP_S for earlier, later in pairwise(moments))


# Hardware in quarantine. Pure.


def left_out(machine: str, name: str, device: str, quarantine: Quarantine) -> RunEvent:
    """The event of a node, or a device of it, that was put in quarantine."""
    subject = f"GPU {device} of {name}" if device else name
    key = f"quarantine/{machine}/{device}/{quarantine.since!r}"
    return RunEvent(key, None, quarantine.since, f"{subject} is in quarantine: {quarantine.why}")
