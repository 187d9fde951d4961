"""Which of a run's checkpoints a rule keeps: *last 2, best 1 by val/loss, every 10,000 steps, pinned*. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from domain.checkpoints.names import SAME_MOMENT_S
from domain.requests.errors import InvalidRequest
from domain.series.goals import goal

KEEP_ALL = "keep all"
EXAMPLE = "last 2, best 1 by val/loss, every 10,000 steps, pinned"
LONGEST_RULE = 400


class Best(NamedTuple):
    """The clause *best N by METRIC*."""

    number: int
    metric: str
    is_highest: bool

    def words(self) -> str:
        """Return the clause; the direction only where the metric's name does not tell it."""
        usual = goal(self.metric) == "max"
        direction = "" if usual == self.is_highest else " highest" if self.is_highest else " lowest"
        return f"best {self.number} by {self.metric}{direction}"


@dataclass(frozen=True)
class RetentionClauses:
    """A rule's clauses: a save is kept if any of them holds, or it is pinned or needed."""

    last: int = 0
    best: tuple[Best, ...] = ()
    every: int = 0
    """Steps; of each such stretch the first save is kept."""

    def __str__(self) -> str:
        clauses = [f"last {self.last}" if self.last else "", *(best.words() for best in self.best)]
        clauses += [f"every {self.every:,} steps" if self.every else "", "pinned"]
        return ", ".join(filter(None, clauses))


def parse(text: str) -> RetentionClauses | None:
    """Read a rule; None keeps all checkpoints. Raises InvalidRequest."""
    if len(text) > LONGEST_RULE:
        raise _wrong(f"it has more than {LONGEST_RULE} characters")
    clauses = [clause.strip() for clause in _GROUPED.sub("", text).split(",")]
    if [clause.lower() for clause in clauses] in (["keep all"], ["all"]):
        return None
    read = [_clause(clause) for clause in clauses]
    last, every = [part.last for part in read if part.last], [part.every for part in read if part.every]
    best = tuple(one for part in read for one in part.best)
    if len(last) > 1 or len(every) > 1 or len({one.metric for one in best}) < len(best):
        raise _wrong("it says the same twice")
    return RetentionClauses(sum(last), best, sum(every))


def text_of(rule: RetentionClauses | None) -> str:
    """Return the one form in which a rule is stored and shown."""
    return KEEP_ALL if rule is None else str(rule)


_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
"""The comma of 10,000, which begins no clause."""
_NUMBER = r"([1-9]\d{0,11})"
_LAST = re.compile(rf"last {_NUMBER}", re.IGNORECASE)
_EVERY = re.compile(rf"every {_NUMBER} steps?", re.IGNORECASE)
_BEST = re.compile(rf"best {_NUMBER} by (\S.*?)(?: (highest|lowest))?", re.IGNORECASE)


def _clause(text: str) -> RetentionClauses:
    """Read one clause: a rule of it alone. Raises InvalidRequest."""
    words = " ".join(text.split())
    if words.lower() == "pinned":
        return RetentionClauses()
    if match := _LAST.fullmatch(words):
        return RetentionClauses(last=int(match[1]))
    if match := _EVERY.fullmatch(words):
        return RetentionClauses(every=int(match[1]))
    if match := _BEST.fullmatch(words):
        is_highest = goal(match[2]) == "max" if match[3] is None else match[3].lower() == "highest"
        return RetentionClauses(best=(Best(int(match[1]), match[2], is_highest),))
    raise _wrong(f"{words!r} is no part of a rule" if words else "a part of it is empty")


def _wrong(problem: str) -> InvalidRequest:
    return InvalidRequest(
        "rule",
        f"rule: {problem}. A rule is {KEEP_ALL!r}, or one or more of `last N`, `best N by METRIC` (with `highest` or "
        f"`lowest` behind it), `every N steps` and `pinned`, with commas between them: {EXAMPLE!r}.",
    )


# The files of one moment or step belong together, and are kept or deleted together.


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint file, and why nothing may delete it."""

    id: int
    attempt: int
    step: int | None
    written_at: float
    is_part: bool = False
    needed: str | None = None
    """Why it is kept whatever the rule: pinned, or something needs it."""
    is_left_behind: bool = False
    """A rollback went back to before it: it is neither the last nor the best."""


@dataclass
class Save:
    """What one attempt saved at one step, or at one moment: one file or several."""

    files: list[SavedCheckpoint] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        """Its step, where one of its files tells it."""
        return next((file.step for file in self.files if file.step is not None), None)

    @property
    def attempt(self) -> int:
        """The number of the attempt that saved it."""
        return self.files[0].attempt

    @property
    def order(self) -> tuple[int, float]:
        """Its place among the saves of its run."""
        return self.attempt, max(file.written_at for file in self.files)

    @property
    def needed(self) -> str | None:
        """Why it is kept whatever the rule."""
        return next((file.needed for file in self.files if file.needed), None)

    @property
    def counts(self) -> bool:
        """Whether it can be the last or the best: not what a rollback left behind, nor parts alone."""
        return any(not file.is_left_behind and not file.is_part for file in self.files)


def saves_of(files: Iterable[SavedCheckpoint]) -> list[Save]:
    """Put the files of one save together: of one step, else of one moment; a part goes with the nearest save."""
    by_step: dict[tuple[int, int], Save] = {}
    for file in (ordered := sorted(files, key=lambda file: (file.attempt, file.written_at, file.id))):
        if file.step is not None:
            by_step.setdefault((file.attempt, file.step), Save()).files.append(file)
    saves = list(by_step.values())
    for file in (file for file in ordered if file.step is None):
        near = _nearest(file, saves)
        if near is None:
            saves.append(near := Save())
        near.files.append(file)
    return sorted(saves, key=lambda save: save.order)


def _nearest(file: SavedCheckpoint, saves: Sequence[Save]) -> Save | None:
    def away(save: Save) -> float:
        return min(abs(one.written_at - file.written_at) for one in save.files)

    of_attempt = [save for save in saves if save.attempt == file.attempt]
    nearest = min(of_attempt, key=away, default=None)
    return nearest if nearest and (file.is_part or away(nearest) <= SAME_MOMENT_S) else None


# The values that saves are compared by.


@dataclass(frozen=True)
class LoggedMetric:
    """What one attempt logged of a metric: steps in order, and a finite value for each."""

    steps: Sequence[int]
    values: Sequence[float]
    saved: Sequence[int] = ()
    """The steps of its saves in order, deleted ones included: a value stays with the save that it was logged for."""
    goes_on: bool = False
    """Whether its attempt still runs, so that a value of its newest saves may follow."""

    def value_at(self, step: int) -> float | None:
        """Return a save's value: the nearest in steps, unless another save is nearer to that one."""
        at = nearest_index(self.steps, step)
        if at is None:
            return None
        rival = nearest_index(self.saved, self.steps[at])
        is_nearer = rival is not None and abs(self.saved[rival] - self.steps[at]) < abs(step - self.steps[at])
        return None if is_nearer else self.values[at]

    def is_awaited(self, step: int) -> bool:
        """Whether the value of a save may still come."""
        return self.goes_on and step > max(self.steps, default=-1)


Metrics = Mapping[str, Mapping[int, LoggedMetric]]
"""By metric, then by the number of the attempt."""


def nearest_index(ordered: Sequence[int], value: int) -> int | None:
    """Return the index of the nearest of ordered numbers, of two the higher; None without any."""
    after = bisect_left(ordered, value)
    around = range(max(0, after - 1), min(len(ordered), after + 1))
    return min(around, key=lambda index: (abs(ordered[index] - value), -index), default=None)


# The decision.


def kept(rule: RetentionClauses | None, saves: Sequence[Save], metrics: Metrics) -> list[str | None]:
    """Return why each save is kept, in words; None: the rule lets it go.

    Without one that counts, without the metric of a clause, or without a rule, all are kept."""
    if rule is None:
        return [KEEP_ALL] * len(saves)
    if missing := next((best.metric for best in rule.best if not metrics.get(best.metric)), None):
        return [f"{missing} is not logged yet, so nothing is the best by it"] * len(saves)
    reasons = [save.needed for save in saves]
    candidates = [index for index, save in enumerate(saves) if save.counts]
    chosen = [*_last(rule, candidates or range(len(saves))), *_every(rule, saves, candidates)]
    chosen += [one for best in rule.best for one in _best(best, saves, candidates, metrics[best.metric])]
    chosen += _of_unknown_step(saves)
    for index, why in chosen:
        reasons[index] = reasons[index] or why
    return reasons


Chosen = Iterator[tuple[int, str]]
"""The numbers of saves, and why each is kept."""


def _last(rule: RetentionClauses, candidates: Sequence[int]) -> Chosen:
    yield from ((index, "the last one") for index in candidates[-1:])
    yield from ((index, f"one of the last {rule.last}") for index in (candidates[-rule.last :] if rule.last else ()))


def _best(
    best: Best, saves: Sequence[Save], candidates: Sequence[int], by_attempt: Mapping[int, LoggedMetric]
) -> Chosen:
    values: dict[int, float] = {}
    for index in candidates:
        logged, step = by_attempt.get(saves[index].attempt), saves[index].step
        if logged is None or step is None:
            continue
        if logged.is_awaited(step):
            yield index, f"{best.metric} at its step is not logged yet"
        elif (value := logged.value_at(step)) is not None:
            values[index] = -value if best.is_highest else value
    ranked = sorted(values, key=lambda index: (values[index], -index))
    yield from ((index, f"one of the best {best.number} by {best.metric}") for index in ranked[: best.number])


def _every(rule: RetentionClauses, saves: Sequence[Save], candidates: Sequence[int]) -> Chosen:
    """Choose the first save of each stretch of so many steps, of several attempts at that step the newest."""
    first: dict[int, tuple[int, int]] = {}
    for index in candidates if rule.every else ():
        step = saves[index].step
        if step is not None and (stretch := step // rule.every):
            first[stretch] = min(first.get(stretch, (step, -index)), (step, -index))
    for stretch, (_, negative) in first.items():
        yield -negative, f"the first from step {stretch * rule.every:,} on"


def _of_unknown_step(saves: Sequence[Save]) -> Chosen:
    """The newest save whose step is unknown: it may be the result itself, such as final.pt."""
    unknown = [index for index, save in enumerate(saves) if save.step is None]
    yield from ((index, "the newest whose step is unknown") for index in unknown[-1:])
