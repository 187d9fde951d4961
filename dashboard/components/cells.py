"""The cluster as cells on the Nodes page: the browser asks for the picture itself, pages only hear of clicks."""

from __future__ import annotations

from collections.abc import Callable

from streamlit.components.v2 import component

from dashboard.components.live_run import loader, text_of

_cells = component(
    "rankzero.cells", css=text_of("dashboard.components", "cluster/cells.css"), js=loader("cluster/cells.js")
)


def cells(selected: str | None, on_picked: Callable[[], None], key: str) -> None:
    """A click on a node leaves its id (or "" for none) under `key` as `picked`; one on a run opens its page."""
    _cells(data={"selected": selected}, key=key, on_picked_change=on_picked)
