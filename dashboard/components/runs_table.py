"""The table of runs: the browser asks for it itself, the page only says which runs are wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamlit.components.v2 import component

from dashboard.components.live_run import loader, text_of

_table = component(
    "rankzero.runs_table",
    css=text_of("dashboard.components", "runs/runs_table.css"),
    js=loader("runs/runs_table.js"),
)


def runs_table(
    filters: Mapping[str, Any], on_cleared: Callable[[], None], on_arrived: Callable[[], None], key: str
) -> None:
    """Draw the runs that match; `cleared` is told when all are wanted, `arrived` with the first run of all."""
    _table(data=dict(filters), key=key, on_cleared_change=on_cleared, on_arrived_change=on_arrived)
