"""The matrix of a preflight on the Nodes page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamlit.components.v2 import component

from dashboard.components.live_run import loader, text_of

_preflight = component(
    "rankzero.preflight",
    css=text_of("dashboard.components", "preflight_matrix/preflight.css"),
    js=loader("preflight_matrix/preflight.js"),
)


def preflight(check: Mapping[str, Any], key: str) -> None:
    """A picture made by dashboard.check_picture; a newer one under the same key changes only what differs."""
    _preflight(data={"check": dict(check)}, key=key)
