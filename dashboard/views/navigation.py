"""The four pages, their addresses, and how one leads to another."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from dashboard.components.page_links import Kind, go_to, page_link
from dashboard.marks import LOGO

IN_BAR = ("runs", "launch", "nodes")
HEADED_BY_BAR = frozenset({"Runs", "Launch", "Nodes"})
"""Pages whose title is the marked link in the bar; the page of a run has its own."""


def pages() -> dict[str, st.Page]:
    """All pages by name. The default page lives only at `/`; Run is opened from a table, not from the top."""
    # Imported here, because every page leads to others through this module.
    from dashboard.views import launch, nodes, run, runs

    return {
        "runs": st.Page(runs.page, title="Runs", icon=":material/list:", default=True),
        "launch": st.Page(launch.page, title="Launch", icon=":material/play_arrow:", url_path="launch"),
        "nodes": st.Page(nodes.page, title="Nodes", icon=":material/dns:", url_path="nodes"),
        "run": st.Page(
            run.page, title="Run", icon=":material/show_chart:", url_path="run", visibility="hidden"
        ),
    }


def bar() -> None:
    """The bar over every page: its links stay where they are on a telephone too."""
    known = pages()
    with st.container(key="bar", horizontal=True, vertical_alignment="center", gap="xxsmall"):
        st.html(f'<span class="logo">{LOGO}</span>', width="content")
        for name in IN_BAR:
            st.page_link(known[name], width="content")
        st.html('<button type="button" class="sign-out">Sign out</button>', width="content")


def address(page: str, **query: str) -> str:
    """A page's address as links name it: `run?id=…`, and `./` for the table of runs."""
    path = "./" if page == "runs" else page
    return f"{path}?{urlencode(query)}" if query else path


def link(
    page: str,
    label: str,
    key: str,
    icon: str | None = None,
    kind: Kind = "secondary",
    help: str | None = None,
    **query: str,
) -> None:
    """A real link to a page that looks like a button; a plain click follows it without leaving the session."""
    page_link(label, address(page, **query), key, icon, kind, help)


def launch_again(
    run_id: str,
    label: str,
    key: str,
    icon: str,
    kind: Kind = "secondary",
    help: str | None = None,
    with_remedy: bool = False,
) -> None:
    """A link to the form filled with a run's specification, if asked for with what mends it."""
    remedy = {"remedy": "1"} if with_remedy else {}
    link("launch", label, key, icon, kind, help, **{"from": run_id}, **remedy)


def go(page: str, **query: str) -> None:
    """Have the browser open a page.

    `st.switch_page` is no way out of a fragment: where one refreshes itself, its next rerun can come in between
    and the page stays blank."""
    go_to(address(page, **query), key="go")
