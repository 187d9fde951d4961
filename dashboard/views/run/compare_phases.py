"""Compare what two runs spend their steps on."""

from __future__ import annotations

import streamlit as st

from dashboard.compare.document import LEAST_S, step_phases
from dashboard.service import service
from dashboard.views.layout.tables import table
from domain.text.formats import UNKNOWN, milliseconds
from domain.views import RunView


def compare_phases(other: RunView, run: RunView) -> None:
    """Show the mean step of both runs, phase by phase; nothing where the probe saw no steps of one."""
    phases = [
        row for row in step_phases(service.current().store, [other.id, run.id], other.id) if len(row["runs"]) == 2
    ]
    if phases:
        rows = [(row["title"], *_cells(row["runs"][other.id], row["runs"][run.id])) for row in phases]
        st.markdown("**Where a step goes**, the mean of all ranks and steps")
        table("phase_differences", ("Phase", f">{other.name}", ">This run", ">Change"), rows)


def _cells(old: dict[str, float], new: dict[str, float]) -> tuple[str, str, str]:
    change = new.get("change_percent")
    return _time(old["seconds"]), _time(new["seconds"]), UNKNOWN if change is None else f"{change:+.0f}%"


def _time(seconds: float) -> str:
    return milliseconds(seconds) if seconds >= LEAST_S else UNKNOWN
