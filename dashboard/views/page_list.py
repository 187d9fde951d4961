"""The pages by name, and the bar over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import streamlit as st

from dashboard.colours import LOGO
from dashboard.page_titles import IN_BAR, TITLES
from dashboard.views import (
    alerts_page,
    compare_page,
    logs_page,
    project_page,
    runs_page,
)
from dashboard.views.launch import launch_page
from dashboard.views.nodes import nodes_page
from dashboard.views.people import account_page, audit_page, menu, people_page
from dashboard.views.run import run_page
from dashboard.views.studies import studies_page

SHOWN: dict[str, tuple[str, Callable[[], None]]] = {
    "": ("list", runs_page.page),
    "studies": ("trending_up", studies_page.page),
    "launch": ("play_arrow", launch_page.page),
    "nodes": ("dns", nodes_page.page),
    "alerts": ("notifications", alerts_page.page),
    "compare": ("stacked_line_chart", compare_page.page),
    "logs": ("manage_search", logs_page.page),
    "scaling": ("trending_up", studies_page.scaling),
    "sweeps": ("tune", studies_page.sweeps),
    "project": ("folder", project_page.page),
    "people": ("group", people_page.page),
    "audit": ("history", audit_page.page),
    "account": ("person", account_page.page),
    "run": ("show_chart", run_page.page),
}
"""Icon and content of each page, by its path."""


def pages() -> dict[str, st.Page]:
    """Return all pages by name. The default page is only at `/`; Run, Project and Compare are opened from a
    table, a sweep or a scaling study from Studies, Search logs from the list of runs."""
    return {path or "runs": _page(path) for path in SHOWN}


def _page(path: str) -> st.Page:
    icon, show = SHOWN[path]
    address = f"/{path}"
    visibility: Literal["visible", "hidden"] = "visible" if address in IN_BAR else "hidden"
    return st.Page(
        show, title=TITLES[address], icon=f":material/{icon}:", url_path=path, default=not path, visibility=visibility
    )


HEADED_BY_THEIR_LISTS = frozenset({"/scaling", "/sweeps"})


def bar() -> None:
    """Show the bar over every page; on a telephone its links stay in place."""
    by_name = pages()
    run = st.session_state["page_run"] = st.session_state.get("page_run", 0) + 1  # seen by redraws.js
    with st.container(key="bar", horizontal=True, vertical_alignment="center", gap="xxsmall"):
        st.html(f'<span class="logo" data-run="{run}">{LOGO}</span>', width="content")
        for page in by_name.values():
            if page.visibility == "visible":
                st.page_link(page, width="content")
        menu.show(by_name)
