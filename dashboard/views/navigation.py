"""The four pages, their addresses, and how one leads to another."""

from __future__ import annotations

from typing import NoReturn

import streamlit as st


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


def open_run(run_id: str) -> NoReturn:
    """Go to a run's own page."""
    st.switch_page(pages()["run"], query_params={"id": run_id})


def open_runs() -> NoReturn:
    """Go to the table of runs."""
    st.switch_page(pages()["runs"])


def open_launch(like_run: str | None = None, with_remedy: bool = False) -> NoReturn:
    """Go to the form, as it was left or filled with a run's specification, if asked for with what mends it."""
    st.session_state.pop("launch_filled_from", None)  # also when it was filled from this run before
    remedy = {"remedy": "1"} if with_remedy else {}
    st.switch_page(pages()["launch"], query_params={"from": like_run} | remedy if like_run else None)


def link(page: str, label: str, icon: str | None = None, **query: str) -> None:
    """A real link to a page, without leaving the session."""
    st.page_link(pages()[page], label=label, icon=icon, query_params=query or None)
