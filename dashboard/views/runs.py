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
from db import queries
from db.curves import main_loss
from db.engine import Store
from db.states import State
from db.views import RunView

REFRESH_S = 2
MOST_ROWS = 200
CURVE_POINTS = 40
TALLEST_PX = 720
ROW_PX = 36


def page() -> None:
    """Title and a way to launch, then the table."""
    with st.container(horizontal=True, vertical_alignment="center"):
        style.page_title("Runs")
        if st.button("Launch a run", type="primary", icon=":material/play_arrow:", key="launch_a_run"):
            navigation.open_launch()
    _runs()


@st.fragment(run_every=REFRESH_S)
@style.readable_without_store
def _runs() -> None:
    if (chosen := st.session_state.pop("runs_opened", None)) is not None:
        navigation.open_run(chosen)
    store, now = service.current().store, service.current().clock()
    everything = queries.runs(store, now, limit=MOST_ROWS)
    if not everything:
        _say_what_to_do_first()
        return
    text, states, project = _filters(everything)
    shown = everything
    if text or states or project:
        wanted = [State(state) for state in states] or None
        shown = queries.runs(store, now, states=wanted, text=text, project=project, limit=MOST_ROWS)
    _table(store, shown, now) if shown else _say_nothing_matches()


def _filters(runs: Sequence[RunView]) -> tuple[str, list[str], str | None]:
    """Search, states and project; all in the address, so that a filtered table can be shared."""
    search, states, projects = st.columns([3, 6, 2], vertical_alignment="bottom")
    text = search.text_input(
        "Search", key="q", type="search", placeholder="Name, project, id or script", live=True,
        icon=":material/search:", label_visibility="collapsed", bind="query-params",
    )  # fmt: skip
    chosen = states.pills(
        "State", [state.value for state in State], selection_mode="multi", key="state",
        label_visibility="collapsed", bind="query-params",
    )  # fmt: skip
    known = sorted({run.project for run in runs} | {st.session_state.get("project") or "default"})
    project = projects.selectbox(
        "Project", known, index=None, placeholder="All projects", key="project",
        label_visibility="collapsed", bind="query-params",
    )  # fmt: skip
    return text or "", list(chosen or ()), project


def _table(store: Store, runs: Sequence[RunView], now: float) -> None:
    st.session_state["runs_shown"] = [run.id for run in runs]
    st.dataframe(
        _by_column([_row(store, run, now) for run in runs]),
        key="runs_table",
        hide_index=True,
        height=min(TALLEST_PX, ROW_PX * (len(runs) + 1) + 3),
        row_height=ROW_PX,
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
        "Progress": run.progress,
        "Step": run.step,
        "Loss": run.last_loss,
        "Loss curve": loss_curve(store, run.id, run.attempt, run.step),
        "Samples/s": run.throughput,
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
        "Project": column.TextColumn(width=100),
        "Progress": column.ProgressColumn(format="percent", min_value=0, max_value=1, width=110),
        "Step": column.NumberColumn(format="compact", width=64),
        "Loss": column.NumberColumn(format="%.4g", width=76, help="The training loss as last logged."),
        "Loss curve": column.LineChartColumn(width=130),
        "Samples/s": column.NumberColumn(format="compact", width=84, help="Over all ranks, as last logged."),
        "Duration": column.NumberColumn(format="compact", width=90),
        "Started": column.DatetimeColumn(format="distance", width=120),
        "Note": column.TextColumn(width="medium"),
    }


def note(run: RunView) -> str:
    """Why a run waits or failed, or what is odd about it, in a few words."""
    if run.state == State.QUEUED:
        return run.waiting_for or ""
    if run.state == State.FAILED:
        return f"{run.reason}: {run.message}" if run.reason and run.message else run.message or ""
    odd = ["lost contact"] if run.lost_contact else []
    if run.last_loss is not None and not math.isfinite(run.last_loss):
        odd.append("the loss is not finite")
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
        st.subheader("No runs yet", anchor=False)
        st.markdown(
            "Launch a recipe that ships, or a script of yours. It trains on the nodes that are connected, "
            "and its loss appears here from the first step on."
        )
        if st.button("Launch the first run", type="primary", icon=":material/play_arrow:"):
            navigation.open_launch()
        st.space("medium")


def _say_nothing_matches() -> None:
    with st.container(border=True, horizontal_alignment="center"):
        st.markdown("No run matches these filters.")
        st.button("Show all runs", on_click=_clear_filters)


def _clear_filters() -> None:
    st.session_state["q"], st.session_state["state"], st.session_state["project"] = "", [], None
