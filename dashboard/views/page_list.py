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


def pages() -> dict[str, st.Page]:
    """Return all pages by name. The default page is only at `/`; Run, Project and Compare are opened from a
    table, a sweep or a scaling study from Studies, Search logs from the list of runs."""
    return {
        "runs": _page("", runs_page.page, "list"),
        "studies": _page("studies", studies_page.page, "trending_up"),
        "launch": _page("launch", launch_page.page, "play_arrow"),
        "nodes": _page("nodes", nodes_page.page, "dns"),
        "alerts": _page("alerts", alerts_page.page, "notifications"),
        "compare": _page("compare", compare_page.page, "stacked_line_chart"),
        "logs": _page("logs", logs_page.page, "manage_search"),
        "scaling": _page("scaling", studies_page.scaling, "trending_up"),
        "sweeps": _page("sweeps", studies_page.sweeps, "tune"),
        "project": _page("project", project_page.page, "folder"),
        "people": _page("people", people_page.page, "group"),
        "audit": _page("audit", audit_page.page, "history"),
        "account": _page("account", account_page.page, "person"),
        "run": _page("run", run_page.page, "show_chart"),
    }


def _page(path: str, show: Callable[[], None], icon: str) -> st.Page:
    address = f"/{path}"
    visibility: Literal["visible", "hidden"] = "visible" if address in IN_BAR else "hidden"
    return st.Page(
        show, title=TITLES[address], icon=f":material/{icon}:", url_path=path, default=not path, visibility=visibility
    )


HEADED_BY_THEIR_LISTS = frozenset({"Scaling", "Sweeps"})


def bar() -> None:
    """Show the bar over every page; on a telephone its links stay in place."""
    by_name = pages()
    run = st.session_state["page_run"] = st.session_state.get("page_run", 0) + 1  # seen by telling.js
    with st.container(key="bar", horizontal=True, vertical_alignment="center", gap="xxsmall"):
        st.html(f'<span class="logo" data-run="{run}">{LOGO}</span>', width="content")
        for page in by_name.values():
            if page.visibility == "visible":
                st.page_link(page, width="content")
        menu.show(by_name)
