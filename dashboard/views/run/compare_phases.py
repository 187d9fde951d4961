"""Compare what two runs spend their steps on."""

from __future__ import annotations

import streamlit as st

from dashboard.service import service
from dashboard.views.layout.tables import table
from db.metrics.phases import phase_totals
from domain.performance.phases import TITLES, mean_of_ranks
from domain.text.formats import UNKNOWN, milliseconds
from domain.views import RunView

NAMES = {"step_s": "Step", **TITLES}
LEAST_S = 1e-5
"""A shorter phase does not matter in a step."""


def compare_phases(other: RunView, run: RunView) -> None:
    """Show the mean step of both runs, phase by phase; nothing where the probe saw no steps of one."""
    store = service.current().store
    old, new = (mean_of_ranks(phase_totals(store, one.id)[0]) for one in (other, run))
    if old and new:
        rows = [
            (NAMES[name], _time(old[name]), _time(new[name]), _change(old[name], new[name]))
            for name in NAMES
            if max(old[name], new[name]) >= LEAST_S
        ]
        st.markdown("**Where a step goes**, the mean of all ranks and steps")
        table("phase_differences", ("Phase", f">{other.name}", ">This run", ">Change"), rows)


def _time(seconds: float) -> str:
    return milliseconds(seconds) if seconds >= LEAST_S else UNKNOWN


def _change(old_s: float, new_s: float) -> str:
    return f"{new_s / old_s - 1:+.0%}" if old_s >= LEAST_S else UNKNOWN
