"""What somebody waits for in a run: its end, a new finding, or a figure that reaches a value."""

from __future__ import annotations

import base64
import json
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domain.clock import Clock

ENDED, FINDING, RUNNING, STEP = "ended", "finding", "running", "step"
WORDS = (ENDED, FINDING, RUNNING)
EXAMPLE = 'ended, finding, running, "step >= 1000" or "val/loss < 0.2"'
LONGEST_UNTIL = 500
"""Characters of a condition."""
MOST_NAMES = 20
"""Series that one condition may name."""
LONGEST_WAIT_S = 600.0
"""How long one request waits."""
TERMINAL = frozenset({"succeeded", "failed", "stopped"})


class NoCondition(ValueError):
    """A text that is no condition; the message is the rule with an example."""


@dataclass(frozen=True)
class Threshold:
    """A figure of a run, compared with a number."""

    name: str
    """`step`, or the name of a series."""
    sign: str
    limit: float

    def is_met(self, values: Collection[float]) -> bool:
        """Whether one of these values is on the right side; NaN never is."""
        return any(_SIGNS[self.sign](value, self.limit) for value in values)


@dataclass(frozen=True)
class Sight:
    """What is seen of a run at one moment."""

    has_ended: bool
    """Whether it has ended, and all of its curves and checkpoints that can arrive have."""
    is_running: bool
    """Whether its ranks train, or have trained and the run has ended."""
    has_new_finding: bool
    values: Mapping[str, Collection[float]] = field(default_factory=dict)
    """Of each figure of the condition: its last value, and those that came since the last look."""


@dataclass(frozen=True)
class Until:
    """A condition: one of its alternatives, each of which needs all of its parts."""

    text: str
    alternatives: tuple[tuple[str | Threshold, ...], ...]

    @property
    def series(self) -> frozenset[str]:
        """The names of the series that it compares."""
        return self._names() - {STEP}

    @property
    def compares(self) -> bool:
        """Whether it compares a figure, which new points may change."""
        return bool(self._names())

    def is_met(self, sight: Sight) -> bool:
        """Whether it holds."""
        return any(all(_holds(part, sight) for part in parts) for parts in self.alternatives)

    def _names(self) -> frozenset[str]:
        parts = [part for parts in self.alternatives for part in parts]
        return frozenset(part.name for part in parts if isinstance(part, Threshold))


def parse_until(text: str) -> Until:
    """Parse a condition, such as `ended` or `val/loss < 0.2 or step >= 1000`. Raises NoCondition."""
    if len(text) > LONGEST_UNTIL:
        raise NoCondition(f"A condition has at most {LONGEST_UNTIL} characters, this one {len(text)}.")
    until = Until(text.strip(), tuple(tuple(map(_part, _AND.split(one))) for one in _OR.split(text)))
    if len(until.series) > MOST_NAMES:
        raise NoCondition(f"A condition names at most {MOST_NAMES} series, this one {len(until.series)}.")
    return until


def has_ended(state: str, delivery: Mapping[str, Any] | None) -> bool:
    """Return whether a run has ended and its curves and checkpoints are complete, or as complete as can be.

    `delivery` has the fields of a `domain.views.DeliveryView`; a node that is silent is not waited for."""
    is_sending = delivery is not None and (delivery["has_points"] or delivery["has_checkpoints"])
    return state in TERMINAL and not (is_sending and delivery is not None and not delivery["silent_nodes"])


@dataclass(frozen=True)
class Cursor:
    """What somebody has seen of a run, so that they are told only what is new."""

    state: str
    attempt: int
    step: int | None
    findings: Collection[str] = ()
    """The kinds of its latest attempt's open findings."""
    series: Mapping[str, int] = field(default_factory=dict)
    """The last step seen of each series that the condition compares, in this attempt."""

    def as_text(self) -> str:
        """The cursor as one word for an address."""
        plain = json.dumps(asdict(self) | {"findings": sorted(self.findings)}, separators=(",", ":"))
        return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def parse_cursor(text: str) -> Cursor:
    """Return the cursor of an earlier answer. Raises NoCondition."""
    try:
        fields = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        cursor = Cursor(**fields)
        read = Cursor(
            str(cursor.state),
            int(cursor.attempt),
            None if cursor.step is None else int(cursor.step),
            frozenset(map(str, cursor.findings)),
            {str(name): int(step) for name, step in cursor.series.items()},
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise NoCondition("since must be the cursor of an earlier answer; leave it out to hear everything.") from None
    return read


CALL_S = 45.0
"""How long a program lets one request wait: most proxies end one that is silent for a minute."""
PATIENCE_S = 5.0
"""Between two tries while the dashboard is away."""


def answers(
    ask: Callable[[float, str], Mapping[str, Any]],
    timeout_s: float | None,
    clock: Clock,
    away: type[Exception],
    on_away: Callable[[Exception], None] = lambda error: None,
) -> Iterator[Mapping[str, Any]]:
    """Yield each answer of the dashboard until the condition holds, the run has ended, or the time is over.

    `ask` gets the seconds to wait and the cursor. While it raises `away`, it is asked again; raises that when the
    time is over."""
    ends_at, since = (None if timeout_s is None else clock.now() + timeout_s), ""
    while True:
        left_s = CALL_S if ends_at is None else max(0.0, ends_at - clock.now())
        try:
            news = ask(min(CALL_S, left_s), since)
        except away as error:
            on_away(error)
            if left_s <= 0:
                raise
            clock.pause(min(PATIENCE_S, left_s))
            continue
        since = news["cursor"]
        yield news
        is_over = ends_at is not None and clock.now() >= ends_at
        if news["is_met"] or news["reached"] == "ended" or is_over:
            return


_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_OR, _AND = re.compile(r"\s+or\s+", re.IGNORECASE), re.compile(r"\s+and\s+", re.IGNORECASE)
_THRESHOLD = re.compile(
    r'(?:"(?P<quoted>[^"]+)"|(?P<name>[^\s"<>=]+))\s*(?P<sign><=|>=|<|>)\s*'
    r"(?P<limit>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
)


def _part(text: str) -> str | Threshold:
    word = text.strip()
    if word.lower() in WORDS:
        return word.lower()
    match = _THRESHOLD.fullmatch(word)
    if match is None:
        raise NoCondition(f"{word[:100]!r} is no condition: write {EXAMPLE}, joined by `and` or `or`.")
    return Threshold(match["quoted"] or match["name"], match["sign"], float(match["limit"]))


def _holds(part: str | Threshold, sight: Sight) -> bool:
    if isinstance(part, Threshold):
        return part.is_met(sight.values.get(part.name, ()))
    return {ENDED: sight.has_ended, FINDING: sight.has_new_finding, RUNNING: sight.is_running}[part]
