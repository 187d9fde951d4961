"""A retention rule, what it keeps and lets go, and the checkpoints that were deleted, as they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.text.formats import plural, size


@dataclass(frozen=True)
class RuleView:
    """The rule that holds for a project or a run."""

    rule: str
    of: str | None
    """run or project: whose rule it is; None: nobody set one, so all checkpoints are kept."""
    set_by: str | None
    set_at: float | None


@dataclass(frozen=True)
class JudgedCheckpoint:
    """A complete checkpoint as a rule judges it."""

    id: int
    name: str
    step: int | None
    size_bytes: int
    kept: str | None
    """Why it is kept; None: the rule lets it go."""


@dataclass(frozen=True)
class RunPlan:
    """What a rule keeps of one run, and what it lets go."""

    run_id: str
    rule: str
    checkpoints: list[JudgedCheckpoint]

    @property
    def gone(self) -> list[JudgedCheckpoint]:
        """The checkpoints that the rule lets go."""
        return [one for one in self.checkpoints if one.kept is None]


@dataclass(frozen=True)
class PlanTotals:
    """What a rule would delete of one or several runs."""

    freed_bytes: int
    checkpoints: int
    runs: int
    sentence: str


def totals_of(plans: Sequence[RunPlan]) -> PlanTotals:
    """Return what plans would delete together."""
    gone = [one for plan in plans for one in plan.gone]
    freed_bytes, runs = sum(one.size_bytes for one in gone), sum(bool(plan.gone) for plan in plans)
    sentence = f"frees {size(freed_bytes)}: {plural(len(gone), 'checkpoint')} of {plural(runs, 'run')}"
    return PlanTotals(freed_bytes, len(gone), runs, sentence if gone else "frees nothing: all checkpoints are kept")
