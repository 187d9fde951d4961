"""Links to our own pages: for the keyboard, for Ctrl-click, and where a fragment refreshes itself."""

from __future__ import annotations

from typing import Literal

from streamlit.components.v2 import component

from dashboard.components.live_run import loader, text_of

Kind = Literal["primary", "secondary", "tertiary"]

_link = component(
    "rankzero.page_link",
    css=text_of("dashboard.components", "links/page_links.css"),
    js=loader("links/page_links.js"),
)


def page_link(
    label: str,
    address: str,
    key: str,
    icon: str | None = None,
    kind: Kind = "secondary",
    help: str | None = None,
) -> None:
    """Draw a link to `address` (as `launch?from=…`) that looks like a button; `icon` is one of elements.js."""
    data = {"label": label, "address": address, "icon": icon, "kind": kind, "help": help}
    _link(data=data, key=key, width="content")


def go_to(address: str, key: str) -> None:
    """Have the browser open `address` now."""
    _link(data={"label": None, "address": address}, key=key, width="content")
