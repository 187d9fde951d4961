"""The Runs page: search and filters, and below them every run with its state, figures and a small loss curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard.components.browser import runs_table, search_field
from dashboard.service import service
from dashboard.service.best_columns import best_columns
from dashboard.views.layout import links, permissions, style
from dashboard.views.run import deleted_runs
from db.people.users import has_several
from db.runs import run_list
from domain.messages import State
from domain.people.rights import OWNER
from domain.people.roles import Action
from domain.search.fields import rises
from domain.search.parser import LONGEST, parse
from domain.search.parser import mine as among_mine
from domain.search.query import QueryError


@style.quiet_without_store
def page() -> None:
    """Show the filters and the table of matching runs, which updates itself."""
    deleted_runs.show()
    projects = run_list.projects(service.current().store)
    filters: dict[str, Any] = _filters(projects) if projects else {}
    if not projects:
        deleted_runs.show_button()
    if refusal := permissions.visitor().refusal_anywhere(Action.ACT):
        filters["refusal"] = refusal
    if not permissions.may_launch():
        filters["may_launch"] = False
    runs_table(filters, on_cleared=_clear_filters, on_changed=_run_again, on_viewed=_take_view, key="runs_table")


MINE = "Mine"
OF_TABLE = ("attention", "sort", "column")
"""Choices that the table itself writes into the address."""
HINT = "Words, or state:failed lr>0.001 val/loss<0.2"
HELP = """
- Words match id, name, project, script, message and note: `gpt "out of memory"`
- `state:failed` `project:vision` `recipe:language_model` `tag:paper` `node:gpu-3`
- `by:ana` `by:me`
- `lr>0.001` `batch_size=32` `nodes>1` `duration>2h` `started:<2d` `created>2026-01-31`
- `val/loss<0.2` the last value of a series
- `archived:yes` `pinned:yes`
- `-tag:paper` excludes; `tag:paper or loss<1` either of them
"""


def _filters(projects: Sequence[str]) -> dict[str, Any]:
    """Show the search and the filters for state and project; they are in the address, so that a view can be shared."""
    _take_filters_from_address()
    is_shared = has_several(service.current().store)
    more = deleted_runs.has_some() + bool(st.session_state["runs_project"])  # buttons beside Help and Logs
    own = [4.4 - more, 6.6, 2.0, 2.0 + more]  # with room for all states
    widths = [1, own[0] - 0.3, own[1] + 0.3, *own[2:]] if is_shared else own
    *mine_field, search, states, project_field, help_ = st.columns(widths, vertical_alignment="center")
    mine = bool(mine_field and mine_field[0].pills(
        "Whose", [MINE], selection_mode="multi", key="runs_mine", label_visibility="collapsed", persist_state="session",
    ))  # fmt: skip
    text = st.session_state["runs_search"]
    shown = {"text": text, "revision": st.session_state.get("runs_cleared", 0)}
    with search:
        search_field(shown | {"hint": HINT, "longest": LONGEST}, _typed, key="runs_search_field")
    chosen = states.pills(
        "State", [state.value for state in State], selection_mode="multi", key="runs_state",
        label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    names = sorted({*projects, st.session_state["runs_project"] or projects[0]})
    project = project_field.selectbox(
        "Project", names, index=None, placeholder="All projects", key="runs_project",
        label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    with help_.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="center", key="runs_help_bar"
    ):
        _beside_filters(project, among_mine(text) if mine else text)
    shared = {"filter": text, "state": chosen, "project": project, "mine": "1" if mine else ""}
    _show_in_address({name: value for name, value in shared.items() if value})
    checked = _checked(text)
    checked["search"] = among_mine(checked["search"]) if mine else checked["search"]
    own_are_none = {"has_launched": False} if mine and not _has_launched() else {}
    of_people = {"has_people": True} if is_shared else {}
    of_metrics = metrics(checked["search"], project)
    return checked | {"states": list(chosen or ()), "project": project} | of_people | own_are_none | of_metrics


def metrics(search: str, project: str | None) -> dict[str, Any]:
    """The columns with the best values of what is searched, or of the project's metric, and how their heads sort."""
    current = service.current()
    columns = best_columns(current.store, parse(search, current.clock()), project)
    return {"metrics": [{"key": column, "first": 1 if rises(column) else -1} for column in columns]} if columns else {}


def _beside_filters(project: str | None, search: str) -> None:
    """Show the help, and the ways to the deleted runs, the project's page and the logs of what is searched."""
    deleted_runs.show_button()
    with st.popover("Help", icon=":material/help:", type="tertiary", key="runs_help"):
        st.markdown(HELP)
    if project:
        links.link("project", "Project", "runs_project_page", "chart", "tertiary", name=project)
    query = {"filter": search} if search else {}
    links.link("logs", "Logs", "runs_logs", "search", "tertiary", "Search logs", **query)


def _has_launched() -> bool:
    """Whether a run is the visitor's own, whatever the filters are."""
    return run_list.has_launched(service.current().store, permissions.visitor().by or OWNER)


def _checked(text: str) -> dict[str, Any]:
    """The search, or the last one that could be read with the problem of this one."""
    try:
        parse(text, service.current().clock())
    except QueryError as error:
        problem = {"text": text, "start": error.start, "end": error.end, "message": str(error)}
        return {"search": st.session_state.get("runs_last_search", ""), "problem": problem}
    st.session_state["runs_last_search"] = text
    return {"search": text, "problem": None}


def _take_filters_from_address() -> None:
    """Read the filters from the address on the first visit; afterwards the session has them."""
    if "runs_search" in st.session_state:
        return
    state_names = {state.value for state in State}
    st.session_state["runs_search"] = st.query_params.get("filter", "")[:LONGEST]
    st.session_state["runs_state"] = [s for s in st.query_params.get_all("state") if s in state_names]
    st.session_state["runs_project"] = st.query_params.get("project")
    st.session_state["runs_mine"] = [MINE] if st.query_params.get("mine") == "1" else []


def _show_in_address(filters: dict[str, Any]) -> None:
    shown = {name: st.query_params.get_all(name) for name in st.query_params}
    query = {name: shown[name] for name in OF_TABLE if name in shown}
    query |= {name: value if isinstance(value, list) else [value] for name, value in filters.items()}
    if shown != query:
        st.query_params.from_dict(query)


def _typed() -> None:
    st.session_state["runs_search"] = st.session_state["runs_search_field"].typed["text"][:LONGEST]


def _clear_filters() -> None:
    st.session_state.update(runs_search="", runs_state=[], runs_project=None, runs_mine=[])
    st.session_state["runs_cleared"] = st.session_state.get("runs_cleared", 0) + 1


def _take_view() -> None:
    """Show what a saved view lists; the table itself has its columns and its order."""
    viewed = st.session_state["runs_table"].viewed
    names = {state.value for state in State}
    st.session_state.update(
        runs_search=str(viewed["filter"])[:LONGEST],
        runs_state=[name for name in viewed["states"] if name in names],
        runs_project=viewed["project"] or None,
        runs_mine=[],
        runs_cleared=st.session_state.get("runs_cleared", 0) + 1,
    )


def _run_again() -> None:
    """Rerun the page when the very first run has arrived, for the filters, or several were deleted, for *Deleted*."""
