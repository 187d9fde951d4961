"""What a study does next: its runs are launched one after another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from domain.messages import State
from domain.scaling.measurement import MOST_RUNS, RunFigures, is_steady


@dataclass(frozen=True)
class StudyRun:
    """One run of a point."""

    run_id: str
    state: State
    is_stopping: bool = False
    has_enough: bool = False
    """Whether a live run that would not end by itself has made the steps that are measured."""
    figures: RunFigures | None = None
    """None before its end, and where it ended before enough could be measured."""
    message: str | None = None

    @property
    def ended_too_soon(self) -> bool:
        """Whether the script ended by itself before enough was measured: it would on any other size, too."""
        return self.state == State.SUCCEEDED and self.figures is None


@dataclass(frozen=True)
class Action:
    """The next thing to do: launch a run of the point `number`, stop `run_id`, wait, or end the study."""

    kind: Literal["launch", "stop", "wait", "end"]
    number: int = 0
    run_id: str = ""


def next_action(points: Sequence[Sequence[StudyRun] | None], is_stopped: bool) -> Action:
    """Decide from the runs of each point; None stands for a point that could not be launched."""
    live = [run for runs in points for run in runs or () if not run.state.is_terminal]
    for run in live:
        if (is_stopped or run.has_enough) and not run.is_stopping:
            return Action("stop", run_id=run.run_id)
    if live:
        return Action("wait")
    if not is_stopped and not any(run.ended_too_soon for runs in points for run in runs or ()):
        for number, runs in enumerate(points):
            if runs is not None and _needs_run(runs):
                return Action("launch", number)
    return Action("end")


def _needs_run(runs: Sequence[StudyRun]) -> bool:
    """Whether a point is measured too few times; one that failed is not tried again."""
    figures = [run.figures for run in runs if run.figures is not None]
    return len(figures) == len(runs) < MOST_RUNS and not is_steady(figures)
