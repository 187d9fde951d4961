"""The figures of profiled ranks side by side, as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from domain.profile_records import DeviceTimes, Gaps, Operator, Overview
from domain.profiles.views import RankOutcome
from domain.text.formats import UNKNOWN, milliseconds

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
OPERATOR_TITLES = ("operator", "calls a step", "self", "share", "total")
NO_DEVICE = "no device was recorded"


def table_of(outcomes: Sequence[RankOutcome], profile_ids: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows: one column for each outcome that has an overview, headed by its profile where named."""
    names = [*profile_ids, *[""] * len(outcomes)]
    titles = [
        "a step of",
        *(f"rank {o.rank} {name}".strip() for o, name in zip(outcomes, names, strict=False)),
    ]
    columns = [_column(outcome, outcome.overview) for outcome in outcomes if outcome.overview]
    return titles, [list(row) for row in zip(ROWS, *columns, strict=True)]


def difference(before: Overview, after: Overview) -> str:
    """Say how the time of a step changed from one profile to another."""
    first_s, second_s = before.seconds / before.steps, after.seconds / after.steps
    exposed = _exposed_s(after) / after.steps - _exposed_s(before) / before.steps
    return (
        f"a step took {milliseconds(second_s)} instead of {milliseconds(first_s)} ({second_s / first_s - 1:+.0%}); "
        f"exposed communication {exposed * 1000:+.3g} ms"
    )


def operator_rows(operators: Sequence[Operator], overview: Overview) -> list[list[str]]:
    """Return (name, calls a step, self time a step, its share, total time a step) of each operator or kernel."""
    return [
        [
            operator.name,
            f"{operator.calls / overview.steps:.3g}",
            milliseconds(operator.self_s / overview.steps),
            f"{operator.self_s / overview.seconds:.0%}",
            milliseconds(operator.total_s / overview.steps),
        ]
        for operator in operators
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
