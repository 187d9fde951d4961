"""The pages by name, and the bar over them."""

from __future__ import annotations

import streamlit as st

from dashboard.marks import LOGO
from dashboard.views import runs_page
from dashboard.views.launch import launch_page
from dashboard.views.nodes import nodes_page
from dashboard.views.run import run_page

IN_BAR = ("runs", "launch", "nodes")


HEADED_BY_BAR = frozenset({"Runs", "Launch", "Nodes"})
"""Pages whose title is the highlighted link in the bar; the page of a run has its own heading."""


def pages() -> dict[str, st.Page]:
    """Return all pages by name. The default page is only at `/`; Run is opened from a table, not from the bar."""
    return {
        "runs": st.Page(runs_page.page, title="Runs", icon=":material/list:", default=True),
        "launch": st.Page(launch_page.page, title="Launch", icon=":material/play_arrow:", url_path="launch"),
        "nodes": st.Page(nodes_page.page, title="Nodes", icon=":material/dns:", url_path="nodes"),
        "run": st.Page(
            run_page.page, title="Run", icon=":material/show_chart:", url_path="run", visibility="hidden"
        ),
    }


def bar() -> None:
    """Show the bar over every page; on a telephone its links stay in place."""
    by_name = pages()
    with st.container(key="bar", horizontal=True, vertical_alignment="center", gap="xxsmall"):
        st.html(f'<span class="logo">{LOGO}</span>', width="content")
        for name in IN_BAR:
            st.page_link(by_name[name], width="content")
        st.html('<button type="button" class="sign-out">Sign out</button>', width="content")
