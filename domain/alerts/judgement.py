"""Judge whether a run meets a rule: each event has a key, by which it is recorded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from domain.alerts.curves import best_step, spikes_in
from domain.alerts.rules import Rule, Trigger
from domain.messages import LIVE_STATES, Point, State
from domain.text.formats import duration_words, number, size

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


@dataclass(frozen=True)
class RunEvent:
    """A run that meets a rule."""

    key: str
    """Identifies it for this rule: the run, its attempt, and what began when."""
    run_id: str | None
    """None in a test."""
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


def standstill(
    run: RunFacts, series: str, points: Sequence[Point], limit: float, now: float
) -> Iterator[RunEvent]:
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


def _event(run: RunFacts, what: str | None, at: float, sentence: str) -> RunEvent:
    key = f"{run.run_id}/{run.attempt}" + (f"/{what}" if what else "")
    return RunEvent(key, run.run_id, at, sentence, fence=run.fence)
