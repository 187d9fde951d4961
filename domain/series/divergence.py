"""Detect a training loss that diverges: it leaves its level, goes far above it and stays there. Pure."""

from __future__ import annotations

import math
import re
from statistics import median

from pydantic import BaseModel

from domain.text.formats import number

BEFORE = 50
"""Points whose level and spread the next ones are compared with."""
LEAST_BEFORE = 5
STAYS = 10
"""Points in a row that are far above: a spike that recovers is none. As many in a row that are not end it."""
EXPLODED, EXPLODED_STAYS = 100.0, 3
"""How many times its level and its beginning a loss is, at so many points in a row, that explodes; one that is warmed
up rises by less."""
SPREADS = 8.0
"""How many spreads above the median is far, with the spread as 1.4826 times the median distance from the median, which
for a normal distribution is its standard deviation: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993."""
LEAST_SPREAD = 0.01
"""Of the median: a loss that hardly varies has a spread, too."""
RATIO = 2.0
FALLEN = 0.5
"""Share of its beginning to which a loss falls that has learned; then it diverges where it is as bad as at first."""
AS_BAD = 0.9


class Divergence(BaseModel):
    """The state remembered of one loss; values that are not finite are left out."""

    begun: list[float] = []
    """The first values."""
    before: list[float] = []
    """The last values that were not far above those before them."""
    lowest: float | None = None
    """The lowest level so far."""
    above: list[float] = []
    """The values since `since`."""
    since: int | None = None
    step: int = 0
    below: int = 0
    """Values in a row that are no longer far above."""

    def take(self, step: int, value: float) -> None:
        """Add the next value."""
        if not math.isfinite(value):
            return
        self.step = step
        if len(self.begun) < LEAST_BEFORE:
            self.begun.append(value)
        if len(self.before) >= LEAST_BEFORE and value > self._bound():
            self.since = step if self.since is None else self.since
            self.above, self.below = [*self.above[1 - BEFORE :], value], 0
            return
        self.below += 1
        if not self.is_certain or self.below >= STAYS:  # the first value that is no longer far above ends a spike
            self._go_on(value)

    def _go_on(self, value: float) -> None:
        self.since, self.above = None, []
        self.before = [*self.before[1 - BEFORE :], value]
        if len(self.before) >= LEAST_BEFORE:
            level = median(self.before)
            self.lowest = level if self.lowest is None else min(self.lowest, level)

    def _bound(self) -> float:
        middle = median(self.before)
        distance = median(abs(value - middle) for value in self.before)
        spread = max(1.4826 * distance, LEAST_SPREAD * abs(middle))
        return max(middle + SPREADS * spread, RATIO * middle)

    @property
    def level_before(self) -> float:
        """The median of the values before."""
        return median(self.before)

    @property
    def is_certain(self) -> bool:
        """Whether the loss diverges: it explodes, or it had fallen and stays as bad as at first."""
        if len(self.above) < EXPLODED_STAYS:
            return False
        first = median(self.begun)
        if min(self.above[-EXPLODED_STAYS:]) >= EXPLODED * max(abs(first), abs(self.level_before)) > 0:
            return True
        has_fallen = self.lowest is not None and 0 < self.lowest <= FALLEN * first
        return has_fallen and len(self.above) >= STAYS and median(self.above[-STAYS:]) >= AS_BAD * first


# The finding's evidence, whose step the server reads again to name the last checkpoint from before.

KIND = "loss diverges"
_SINCE = re.compile(r" diverges since step (-?\d+):")


def evidence_of(name: str, loss: Divergence) -> str:
    """Say since when a loss diverges, and from which level to which."""
    now = median(loss.above[-EXPLODED_STAYS:])
    return (
        f"{name} diverges since step {loss.since}: it was about {number(loss.level_before)} before, and is "
        f"about {number(now)} at step {loss.step}."
    )


def since(evidence: str) -> int | None:
    """Return the step in the evidence of such a finding; None in another one."""
    return int(match[1]) if (match := _SINCE.search(evidence)) else None
