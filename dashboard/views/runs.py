"""The Runs page: every run with its state, figures and a tiny loss curve, kept current by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import streamlit as st

from dashboard import service
from dashboard.views import navigation, style
from dashboard.views.formats import UNKNOWN, not_finite
from db import queries
from db.curves import main_loss
from db.engine import Store
from db.states import State
from db.views import RunView

REFRESH_S = 2
MOST_ROWS = 200
CURVE_POINTS = 40
MOST_UNSCROLLED = 18
ROW_PX = 36


@st.fragment(run_every=REFRESH_S)
@style.readable_without_store
def page() -> None:
    """The table of all runs, or what to do when there is none."""
    if (chosen := st.session_state.pop("runs_opened", None)) is not None:
        navigation.go("run", id=chosen)
    store, now = service.current().store, service.current().now_for_contact()
    everything = queries.runs(store, now, limit=MOST_ROWS)
    if not everything:
        _say_what_to_do_first()
        return
    text, states, project = _filters(everything)
    shown = everything
    if text or states or project:
        wanted = [State(state) for state in states] or None
        shown = queries.runs(store, now, states=wanted, text=text, project=project, limit=MOST_ROWS)
    _table(store, shown, service.current().clock()) if shown else _say_nothing_matches()


def _filters(runs: Sequence[RunView]) -> tuple[str, list[str], str | None]:
    """Search, states and project; all in the address, so that a filtered table can be shared."""
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
    known = sorted({run.project for run in runs} | {st.session_state["runs_project"] or "default"})
    project = projects.selectbox(
        "Project", known, index=None, placeholder="All projects", key="runs_project",
        label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    shared = {"q": text, "state": chosen, "project": project}
    _show_in_address({name: value for name, value in shared.items() if value})
    return text or "", list(chosen or ()), project


def _take_filters_from_address() -> None:
    """At the first look; from then on the session knows them, also after a visit to another page."""
    if "runs_q" in st.session_state:
        return
    known = {state.value for state in State}
    st.session_state["runs_q"] = st.query_params.get("q", "")
    st.session_state["runs_state"] = [s for s in st.query_params.get_all("state") if s in known]
    st.session_state["runs_project"] = st.query_params.get("project")


def _show_in_address(filters: dict[str, Any]) -> None:
    shown = {name: st.query_params.get_all(name) for name in st.query_params}
    wanted = {name: value if isinstance(value, list) else [value] for name, value in filters.items()}
    if shown != wanted:
        st.query_params.from_dict(wanted)


def _table(store: Store, runs: Sequence[RunView], now: float) -> None:
    st.session_state["runs_shown"] = [run.id for run in runs]
    st.dataframe(
        _by_column([_row(store, run, now) for run in runs]),
        key="runs_table",
        hide_index=True,
        height="content" if len(runs) <= MOST_UNSCROLLED else ROW_PX * MOST_UNSCROLLED,
        row_height=ROW_PX,
        placeholder=UNKNOWN,
        column_config=_columns(),
        selection_mode="single-cell",
        on_select=_open_clicked,
    )
    if len(runs) == MOST_ROWS:
        st.caption(f"The newest {MOST_ROWS} runs are shown; search to find older ones.")


def _row(store: Store, run: RunView, now: float) -> dict[str, Any]:
    return {
        "State": [run.state.value],
        "Name": run.name,
        "Project": run.project,
        "Progress": None if run.progress is None else 100 * run.progress,
        "Step": run.step,
        "Loss": run.last_loss,
        "Loss curve": loss_curve(store, run.id, run.attempt, run.step),
        "Samples/s": _three_digits(run.throughput),
        "Duration": _duration(run, now),
        "Started": datetime.fromtimestamp(run.started_at or run.created_at, UTC),
        "Note": note(run),
    }


def _by_column(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {title: [row[title] for row in rows] for title in rows[0]}


def _columns() -> dict[str, Any]:
    column = st.column_config
    states = [state.value for state in State]
    colours = [style.STATE_PILLS[state] for state in State]
    return {
        "State": column.MultiselectColumn(options=states, color=colours, width=96),
        "Name": column.TextColumn(width="medium", help="Click a row to open the run."),
        "Project": column.TextColumn(width=84),
        "Progress": column.ProgressColumn(format="%.0f %%", min_value=0, max_value=100, width=104),
        "Step": column.NumberColumn(format="localized", width=72),
        "Loss": column.NumberColumn(format="%.4g", width=76, help="The training loss as last logged."),
        "Loss curve": column.LineChartColumn(width=112),
        "Samples/s": column.NumberColumn(
            format="localized", width=84, help="Over all ranks, as last logged."
        ),
        "Duration": column.NumberColumn(format="compact", width=86),
        "Started": column.DatetimeColumn(format="distance", width=112),
        "Note": column.TextColumn(width="medium"),
    }


def note(run: RunView) -> str:
    """Why a run waits or failed, or what is odd about it, in a few words."""
    if run.state in (State.QUEUED, State.STARTING, State.STOPPING) and run.waiting_for:
        return run.waiting_for
    if run.state == State.FAILED:
        return f"{run.reason}: {run.message}" if run.reason and run.message else run.message or ""
    odd = ["lost contact"] if run.lost_contact else []
    if run.finding:
        odd.append(run.finding)
    elif wrong := not_finite(run.last_loss, run.loss_not_finite_since):
        odd.append(f"the loss is {wrong}")
    return ", ".join(odd)


@lru_cache(maxsize=4 * MOST_ROWS)
def loss_curve(store: Store, run_id: str, attempt: int, step: int | None) -> list[float] | None:
    """The loss in a few points, read again only when the run has made a step."""
    name = main_loss(queries.series_names(store, run_id)) if step is not None else None
    if name is None:
        return None
    found = queries.series(store, run_id, [name], max_points=CURVE_POINTS)[name].points
    finite = [value for _, value, _ in found if math.isfinite(value)]
    return finite if len(finite) > 1 else None


def _three_digits(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")


def _duration(run: RunView, now: float) -> timedelta | None:
    if run.started_at is None:
        return None
    return timedelta(seconds=int(max(0.0, (run.ended_at or now) - run.started_at)))


def _open_clicked() -> None:
    """A click anywhere in a row opens its run; rows are those that were shown when it was clicked."""
    cells = st.session_state["runs_table"]["selection"]["cells"]
    shown = st.session_state.get("runs_shown", [])
    if cells and cells[0][0] < len(shown):
        st.session_state["runs_opened"] = shown[cells[0][0]]


def _say_what_to_do_first() -> None:
    with st.container(border=True, horizontal_alignment="center", gap="small"):
        st.space("medium")
        st.subheader("No runs yet", anchor=False, text_alignment="center")
        st.markdown(
            "Launch a recipe that ships, or a script of yours. It trains on the nodes that are connected, "
            "and its loss appears here from the first step on.",
            text_alignment="center",
        )
        navigation.link("launch", "Launch the first run", "first_run", "launch", "primary")
        st.space("medium")


def _say_nothing_matches() -> None:
    with st.container(border=True, horizontal_alignment="center"):
        st.markdown("No run matches these filters.", text_alignment="center")
        st.button("Show all runs", on_click=_clear_filters)


def _clear_filters() -> None:
    st.session_state.update(runs_q="", runs_state=[], runs_project=None)
