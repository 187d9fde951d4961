"""The pages by name, and the bar over them."""

from __future__ import annotations

import streamlit as st

from dashboard.colours import LOGO
from dashboard.views import (
    alerts_page,
    compare_page,
    logs_page,
    project_page,
    runs_page,
    scaling_page,
    studies_page,
    sweeps_page,
)
from dashboard.views.launch import launch_page
from dashboard.views.nodes import nodes_page
from dashboard.views.run import run_page


def pages() -> dict[str, st.Page]:
    """Return all pages by name. The default page is only at `/`; Run, Project and Compare are opened from a
    table, a sweep or a scaling study from Studies, Log search from the list of runs."""
    return {
        "runs": st.Page(runs_page.page, title="Runs", icon=":material/list:", default=True),
        "studies": st.Page(studies_page.page, title="Studies", icon=":material/trending_up:", url_path="studies"),
        "launch": st.Page(launch_page.page, title="Launch", icon=":material/play_arrow:", url_path="launch"),
        "nodes": st.Page(nodes_page.page, title="Nodes", icon=":material/dns:", url_path="nodes"),
        "alerts": st.Page(alerts_page.page, title="Alerts", icon=":material/notifications:", url_path="alerts"),
        "compare": st.Page(
            compare_page.page,
            title="Compare",
            icon=":material/stacked_line_chart:",
            url_path="compare",
            visibility="hidden",
        ),
        "logs": st.Page(
            logs_page.page,
            title="Log search",
            icon=":material/manage_search:",
            url_path="logs",
            visibility="hidden",
        ),
        "scaling": st.Page(
            scaling_page.page,
            title="Scaling",
            icon=":material/trending_up:",
            url_path="scaling",
            visibility="hidden",
        ),
        "sweeps": st.Page(
            sweeps_page.page,
            title="Sweeps",
            icon=":material/tune:",
            url_path="sweeps",
            visibility="hidden",
        ),
        "project": st.Page(
            project_page.page,
            title="Project",
            icon=":material/folder:",
            url_path="project",
            visibility="hidden",
        ),
        "run": st.Page(run_page.page, title="Run", icon=":material/show_chart:", url_path="run", visibility="hidden"),
    }


IN_BAR = ("runs", "studies", "launch", "nodes", "alerts")
HEADED_BY_BAR = frozenset({"Runs", "Studies", "Scaling", "Sweeps", "Launch", "Nodes", "Alerts"})
"""Pages whose title is a link in the bar, or in the address only; the page of a run has its own heading."""


def bar() -> None:
    """Show the bar over every page; on a telephone its links stay in place."""
    by_name = pages()
    run = st.session_state["page_run"] = st.session_state.get("page_run", 0) + 1  # seen by telling.js
    with st.container(key="bar", horizontal=True, vertical_alignment="center", gap="xxsmall"):
        st.html(f'<span class="logo" data-run="{run}">{LOGO}</span>', width="content")
        for name in IN_BAR:
            st.page_link(by_name[name], width="content")
        st.html('<button type="button" class="sign-out">Sign out</button>', width="content")
