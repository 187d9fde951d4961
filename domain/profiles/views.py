"""A profile of several ranks, as pages and the command line show it, with their figures side by side as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter

from domain.profiles.records import DeviceTimes, Gaps, Operator, Overview
from domain.text.columns import Column, Columns, Figure
from domain.text.formats import UNKNOWN, as_list, milliseconds, plural, size

ANSWER_S = 60.0
"""Seconds after the last moment to begin within which a rank records, writes its trace and answers."""


class ProfileState(StrEnum):
    """The stage of a profile, of one rank or of all."""

    RECORDING = "recording"
    """Requested; the chosen steps have not come, or the trace has not arrived."""
    RECORDED = "recorded"
    """The trace is stored."""
    TIMED_OUT = "timed out"
    """The rank did not come to the chosen steps in time."""
    FAILED = "failed"
    """There is no trace; the reason is next to it."""


@dataclass(frozen=True)
class RankOutcome:
    """What became of a profile in one rank."""

    rank: int
    node: str
    state: ProfileState
    why: str = ""
    size_bytes: int = 0
    step_s_before: float | None = None
    overview: Overview | None = None

    @property
    def slower_by(self) -> float | None:
        """How much longer a step took while it was recorded, as a share of one before."""
        if self.overview is None or not self.step_s_before:
            return None
        return self.overview.seconds / self.overview.steps / self.step_s_before - 1


@dataclass(frozen=True)
class ProfileFile:
    """The stored trace of one rank."""

    rank: int
    name: str
    size_bytes: int
    path: str
    """On the server."""


@dataclass(frozen=True)
class ProfileView:
    """One profile of a run."""

    id: str
    state: ProfileState
    attempt: int
    ranks: list[int]
    first_step: int
    steps: int
    requested_at: float
    files: list[ProfileFile]
    outcomes: list[RankOutcome]


def state_of_all(outcomes: Sequence[RankOutcome]) -> ProfileState:
    """Return the state of a profile: recorded where any rank is, once all have answered."""
    states = {outcome.state for outcome in outcomes}
    order = (
        ProfileState.RECORDING,
        ProfileState.RECORDED,
        ProfileState.TIMED_OUT,
        ProfileState.FAILED,
    )
    return next(state for state in order if state in states)


def first_step_to_record(positions: Sequence[tuple[int, float, float]], in_s: float) -> int:
    """Return a step that no rank has reached `in_s` seconds from now; each position is (step, seconds a step, age)."""
    return max(int(step + (min(age_s, 10.0) + in_s) / max(step_s, 1e-4)) + 4 for step, step_s, age_s in positions)


@dataclass(frozen=True)
class ProfileCost:
    """What a profile cost in one rank."""

    slower_by: float
    """How much longer a step took while it was recorded, as a share of one before."""
    step_bytes: float
    """Bytes of the trace for each step."""
    run: str = ""
    """The run that was profiled; empty for the one that is asked about."""


def latest_cost(profiles: Sequence[ProfileView]) -> ProfileCost | None:
    """Return what the latest of a run's profiles cost; None where none was recorded."""
    costs = [
        ProfileCost(outcome.slower_by, outcome.size_bytes / profile.steps)
        for profile in profiles
        for outcome in profile.outcomes
        if outcome.slower_by is not None
    ]
    return costs[-1] if costs else None


def cost_sentence(cost: ProfileCost | None, ranks: int) -> str:
    """Say what a profile of so many ranks costs, by what another one did."""
    if cost is None:
        return (
            "Steps are slower while it records, and each rank sends its trace. No run has been profiled here yet, so "
            "by how much is unknown; nothing is left afterwards."
        )
    source = f"the last profile here, of run {cost.run}" if cost.run else "this run's last profile"
    return (
        f"By {source}: about {max(0.0, cost.slower_by):.0%} slower while it records, "
        f"{size(cost.step_bytes)} a step in each of {plural(ranks, 'rank')}; nothing is left afterwards."
    )


def troubles(profile: ProfileView) -> list[str]:
    """Return one sentence for each reason why ranks have no trace."""
    reasons: dict[str, list[int]] = {}
    for outcome in profile.outcomes:
        if outcome.why:
            reasons.setdefault(outcome.why, []).append(outcome.rank)
    return [
        f"{'Rank' if len(ranks) == 1 else 'Ranks'} {as_list(str(rank) for rank in ranks)}: {why}."
        for why, ranks in reasons.items()
    ]


# The figures of profiled ranks side by side, as text. Pure.

ROWS = (
    "while recorded",
    "before",
    "waits for data",
    "communication (CPU)",
    "… exposed",
    "between operators",
    "device busy",
    "device communication",
    "… exposed",
    "between kernels",
)
NO_DEVICE = "no device was recorded"


def table_of(
    outcomes: Sequence[RankOutcome], profile_ids: Sequence[str] = ()
) -> tuple[Columns[Sequence[str]], list[Sequence[str]]]:
    """Return columns and rows: a column for each outcome that has an overview, headed by its profile where named."""
    names = [*profile_ids, *[""] * len(outcomes)]
    figures = [
        Figure[Sequence[str]](f"rank {outcome.rank} {name}".strip(), itemgetter(number))
        for number, (outcome, name) in enumerate(zip(outcomes, names, strict=False), 1)
    ]
    cells = [_column(outcome, outcome.overview) for outcome in outcomes if outcome.overview]
    return [Column("a step of", itemgetter(0)), *figures], list(zip(ROWS, *cells, strict=True))


def difference(before: Overview, after: Overview) -> str:
    """Say how the time of a step changed from one profile to another."""
    first_s, second_s = before.seconds / before.steps, after.seconds / after.steps
    exposed = _exposed_s(after) / after.steps - _exposed_s(before) / before.steps
    return (
        f"a step took {milliseconds(second_s)} instead of {milliseconds(first_s)} ({second_s / first_s - 1:+.0%}); "
        f"exposed communication {exposed * 1000:+.3g} ms"
    )


def operators(title: str, overview: Overview) -> Columns[Operator]:
    """Return the columns of operators or kernels, whose name is headed by the title; the times are those of a step."""
    return [
        Column(title, lambda operator: operator.name),
        Figure("calls a step", lambda operator: f"{operator.calls / overview.steps:.3g}"),
        Figure("self", lambda operator: milliseconds(operator.self_s / overview.steps)),
        Figure("share", lambda operator: f"{operator.self_s / overview.seconds:.0%}"),
        Figure("total", lambda operator: milliseconds(operator.total_s / overview.steps)),
    ]


def _column(outcome: RankOutcome, view: Overview) -> list[str]:
    return [
        milliseconds(view.seconds / view.steps),
        milliseconds(outcome.step_s_before),
        _time(view.data_s, view),
        _time(view.communication_s, view),
        _time(view.exposed_communication_s, view),
        _gaps(view.gaps, view),
        *_device(view.device, view),
    ]


def _device(device: DeviceTimes | None, view: Overview) -> list[str]:
    if device is None:
        return [NO_DEVICE, UNKNOWN, UNKNOWN, UNKNOWN]
    return [
        f"{device.busy_share:.0%}",
        _time(device.communication_s, view),
        _time(device.exposed_communication_s, view),
        _gaps(device.gaps, view),
    ]


def _time(seconds: float, view: Overview) -> str:
    return f"{milliseconds(seconds / view.steps)} ({seconds / view.seconds:.0%})"


def _gaps(gaps: Gaps, view: Overview) -> str:
    return f"{_time(gaps.total_s, view)}, longest {milliseconds(gaps.longest_s)}"


def _exposed_s(view: Overview) -> float:
    return view.device.exposed_communication_s if view.device else view.exposed_communication_s
