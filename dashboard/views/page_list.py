"""The pages by name, and the bar over them."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard.colours import LOGO
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
        "runs": st.Page(runs_page.page, title="Runs", icon=":material/list:", default=True),
        "studies": st.Page(studies_page.page, title="Studies", icon=":material/trending_up:", url_path="studies"),
        "launch": st.Page(launch_page.page, title="Launch", icon=":material/play_arrow:", url_path="launch"),
        "nodes": st.Page(nodes_page.page, title="Nodes", icon=":material/dns:", url_path="nodes"),
        "alerts": st.Page(alerts_page.page, title="Alerts", icon=":material/notifications:", url_path="alerts"),
        "compare": _hidden(compare_page.page, "Compare", ":material/stacked_line_chart:"),
        "logs": _hidden(logs_page.page, "Search logs", ":material/manage_search:", "logs"),
        "scaling": _hidden(studies_page.scaling, "Scaling", ":material/trending_up:"),
        "sweeps": _hidden(studies_page.sweeps, "Sweeps", ":material/tune:"),
        "project": _hidden(project_page.page, "Project", ":material/folder:"),
        "people": _hidden(people_page.page, "People", ":material/group:"),
        "audit": _hidden(audit_page.page, "Audit", ":material/history:"),
        "account": _hidden(account_page.page, "Account", ":material/person:"),
        "run": _hidden(run_page.page, "Run", ":material/show_chart:"),
    }


def _hidden(show: Callable[[], None], title: str, icon: str, address: str | None = None) -> st.Page:
    """A page that is not in the bar."""
    return st.Page(show, title=title, icon=icon, url_path=address or title.lower(), visibility="hidden")


IN_BAR = ("runs", "studies", "launch", "nodes", "alerts")
TITLED = frozenset({"Runs", "Studies", "Launch", "Nodes", "Alerts"})
"""Pages that begin with the word of their link in the bar; others have a heading of their own."""
HEADED_BY_THEIR_LISTS = frozenset({"Scaling", "Sweeps"})


def bar() -> None:
    """Show the bar over every page; on a telephone its links stay in place."""
    by_name = pages()
    run = st.session_state["page_run"] = st.session_state.get("page_run", 0) + 1  # seen by telling.js
    with st.container(key="bar", horizontal=True, vertical_alignment="center", gap="xxsmall"):
        st.html(f'<span class="logo" data-run="{run}">{LOGO}</span>', width="content")
        for name in IN_BAR:
            st.page_link(by_name[name], width="content")
        menu.show(by_name)
