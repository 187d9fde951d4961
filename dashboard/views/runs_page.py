"""The Runs page: filters, and below them every run with its state, figures and a small loss curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard.components.browser import runs_table
from dashboard.service import service
from dashboard.views.layout import style
from db.queries import run_queries
from domain.messages import State
from domain.views import RunView

MOST_KNOWN = 200
ATTENTION = "attention"
"""A filter that the table itself writes into the address."""


@style.asked_again_without_store
def page() -> None:
    """Show the filters and the table of matching runs, which updates itself."""
    store, now = service.current().store, service.current().now_for_contact()
    runs = run_queries.runs(store, now, limit=MOST_KNOWN)
    filters: dict[str, Any] = _filters(runs) if runs else {}
    runs_table(filters, on_cleared=_clear_filters, on_arrived=_run_again, key="runs_table")


def _filters(runs: Sequence[RunView]) -> dict[str, Any]:
    """Show the filters for text, state and project; they are in the address, so that a view can be shared."""
    _take_filters_from_address()
    search, states, projects = st.columns([3, 6, 2], vertical_alignment="center")
    text = search.text_input(
        "Search", key="runs_q", type="search", placeholder="Name, project, id or script", live=True,
        icon=":material/search:", label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    chosen = states.pills(
        "State", [state.value for state in State], selection_mode="multi", key="runs_state",
        label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    project_names = sorted({run.project for run in runs} | {st.session_state["runs_project"] or "default"})
    project = projects.selectbox(
        "Project", project_names, index=None, placeholder="All projects", key="runs_project",
        label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    shared = {"q": text, "state": chosen, "project": project}
    _show_in_address({name: value for name, value in shared.items() if value})
    return {"q": text or "", "states": list(chosen or ()), "project": project}


def _take_filters_from_address() -> None:
    """Read the filters from the address on the first visit; afterwards the session has them."""
    if "runs_q" in st.session_state:
        return
    state_names = {state.value for state in State}
    st.session_state["runs_q"] = st.query_params.get("q", "")
    st.session_state["runs_state"] = [s for s in st.query_params.get_all("state") if s in state_names]
    st.session_state["runs_project"] = st.query_params.get("project")


def _show_in_address(filters: dict[str, Any]) -> None:
    shown = {name: st.query_params.get_all(name) for name in st.query_params}
    query = {name: shown[name] for name in (ATTENTION,) if name in shown}
    query |= {name: value if isinstance(value, list) else [value] for name, value in filters.items()}
    if shown != query:
        st.query_params.from_dict(query)


def _clear_filters() -> None:
    st.session_state.update(runs_q="", runs_state=[], runs_project=None)


def _run_again() -> None:
    """Rerun the page when the very first run has arrived, so that it shows the filters."""
