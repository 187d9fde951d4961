"""A sweep in the form: the settings as they are, with several values or a range of some of them."""

from __future__ import annotations

import streamlit as st
from pydantic import ValidationError

from dashboard.errors import describe
from dashboard.service import service
from dashboard.sweeps.request import SweepRequest, create
from dashboard.views.launch.study_popover import StudyPopover
from domain.errors import InvalidRequest
from domain.spec import RunSpec
from domain.sweeps.parameters import parameters_of
from domain.sweeps.plan import EarlyStop

PREFIX = "sweep_"
GOALS = {"min": "low", "max": "high"}


def _fields() -> None:
    st.caption(
        "Trains these settings with different values, each trial a run in the queue, and names the best."
    )
    st.text_area(
        "Parameters, one a line: values or a range",
        key=f"{PREFIX}parameters",
        height=96,
        placeholder="lr=1e-4,3e-4,1e-3\nwidth=64..512\nweight_decay=1e-5..1e-1:log",
    )
    st.text_input("Metric: the series that is compared", key=f"{PREFIX}metric", placeholder="val/loss")
    goal, search = st.columns(2)
    goal.segmented_control(
        "Better values are",
        list(GOALS),
        default="min",
        format_func=GOALS.__getitem__,
        key=f"{PREFIX}goal",
    )
    search.segmented_control("Search", ["grid", "random", "tpe"], key=f"{PREFIX}search")
    early, first_rung = st.columns(2)
    early_stop = early.segmented_control(
        "Stop trials that are behind",
        ["none", "asha", "median"],
        default="none",
        key=f"{PREFIX}early_stop",
        help="asha: those not in the best third at a step; they go on from their checkpoint if they are after "
        "all. median: those behind half of the others.",
    )
    first_rung.number_input(
        "First judged at step",
        1,
        None,
        None,
        key=f"{PREFIX}first_rung",
        placeholder="a ninth of the steps",
        disabled=early_stop in (None, "none"),
    )
    trials, hours = st.columns(2)
    trials.number_input(
        "Trials", 1, 10_000, None, key=f"{PREFIX}trials", placeholder="the whole grid, else 20"
    )
    hours.number_input("Device-hours at most", 0.01, None, None, key=f"{PREFIX}hours", placeholder="no limit")


def _create(spec: RunSpec, like: str | None) -> str:
    lines = [line for line in str(st.session_state[f"{PREFIX}parameters"] or "").splitlines() if line.strip()]
    early_stop: EarlyStop = st.session_state[f"{PREFIX}early_stop"] or "none"
    try:
        request = SweepRequest(
            spec=spec,
            parameters=parameters_of(lines),
            metric=str(st.session_state[f"{PREFIX}metric"] or "").strip(),
            goal=st.session_state[f"{PREFIX}goal"] or "min",
            search=st.session_state[f"{PREFIX}search"],
            trials=st.session_state[f"{PREFIX}trials"],
            early_stop=early_stop,
            first_rung=st.session_state[f"{PREFIX}first_rung"] if early_stop != "none" else None,
            max_device_hours=st.session_state[f"{PREFIX}hours"],
        )
        return create(service.current(), request, like)
    except ValueError as error:
        raise InvalidRequest("parameters", in_words(error)) from None


def in_words(error: ValueError) -> str:
    """Return the first rule that was broken, with its field."""
    if not isinstance(error, ValidationError):
        return f"Parameters {error}."
    _, sentence = describe(error.errors())
    return sentence[0].upper() + sentence[1:]


POPOVER = StudyPopover("sweep", "sweeps", "Sweep", "tune", "Start the sweep", _fields, _create)
