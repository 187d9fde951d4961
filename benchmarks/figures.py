"""A row of the table: ours against a peer or a limit, measured in turns within one run."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import psutil

RESULTS = Path(__file__).parent / "results"
QUICK_RESULTS = RESULTS / "quick"
"""Of sizes so small that they only show that a measurement runs."""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of what was measured several times."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Summarise at least one value."""
        several = [*values]
        return cls(*statistics.quantiles(several * 2 if len(several) == 1 else several, method="inclusive"))

    def __str__(self) -> str:
        """The median, with the quartiles where there are several values."""
        quartiles = f" ({self.low:.3g}-{self.high:.3g})" if self.low != self.high else ""
        return f"{self.median:.3g}{quartiles}"


@dataclass(frozen=True)
class Figure:
    """One measured row; `ratio` is ours divided by the peer's, in what `what` names."""

    what: str
    ours: str
    peer: str
    theirs: str
    ratio: Spread
    target: float
    better: Literal["more", "less"] = "more"

    @property
    def is_met(self) -> bool:
        """Whether the median reaches the target."""
        median = self.ratio.median
        return median >= self.target if self.better == "more" else median <= self.target

    @property
    def aim(self) -> str:
        """The target with its direction."""
        return f"{'≥' if self.better == 'more' else '≤'} {self.target:g}"


@dataclass
class Cost:
    """How the cost of one operation grows with a size: seconds by size, and the exponent of a power law."""

    what: str
    size_name: str
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def exponent(self) -> float:
        """Slope of log(seconds) over log(size), by least squares: 0 is flat, 1 is proportional."""
        import numpy as np

        sizes, seconds = np.log([*self.seconds]), np.log([*self.seconds.values()])
        return float(np.polyfit(sizes, seconds, 1)[0])


def in_turns(acts: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Let every act run once a round, in an order that rotates, so that a drift of the machine favours none.

    An act returns what it measured, in its own unit."""
    names = [*acts]
    measured: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            measured[name].append(acts[name]())
    return measured


def milliseconds(seconds: float) -> str:
    """With three digits: 83.2 ms, 5,372 ms."""
    value = 1000 * seconds
    return f"{value:,.0f} ms" if value >= 1000 else f"{value:.3g} ms"


def ratios(ours: list[float], theirs: list[float]) -> Spread:
    """Divide round by round."""
    return Spread.of(mine / other for mine, other in zip(ours, theirs, strict=True))


def write(path: Path, rows: list[Figure | Cost]) -> None:
    """Write the rows of one measurement with the machine they come from and how busy it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    memory_gib = psutil.virtual_memory().total >> 30
    machine = f"{psutil.cpu_count()} cores, {memory_gib} GiB, Python {platform.python_version()}"
    figures = [asdict(row) | {"met": row.is_met} for row in rows if isinstance(row, Figure)]
    costs = [asdict(row) | {"exponent": row.exponent} for row in rows if isinstance(row, Cost)]
    document = {"machine": machine, "load": round(os.getloadavg()[2], 1), "figures": figures, "costs": costs}
    path.write_text(json.dumps(document, indent=1) + "\n")
