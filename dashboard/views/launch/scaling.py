"""Scaling in the form: the newest study of the same program, and a study of the settings as they are."""

from __future__ import annotations

import streamlit as st

from dashboard.planning.resolve import Resolved
from dashboard.scaling.document import judgement
from dashboard.scaling.request import StudyRequest, create
from dashboard.service import service
from dashboard.views.layout import links, refusals
from db.scaling import studies
from domain.errors import InvalidRequest
from domain.scaling.judgement import named
from domain.spec import RunSpec

PREFIX = "study_"
MODES = {"weak": "of each rank", "strong": "of all ranks"}
REQUESTED, REFUSED = "study_requested", "study_refused"


def cite(planned: Resolved) -> None:
    """Cite the newest scaling study of the same program: its efficiency on as many devices, else on the most."""
    current, spec = service.current(), planned.asked
    study = studies.latest_of(current.store, spec.target, spec.entry, spec.module)
    if study is None:
        return
    points = judgement(study, current.figures).points
    measured = [one for one in points if one.efficiency is not None and one.strategy == study.spec.strategy]
    if len(measured) < 2:
        return
    devices = planned.spec.nodes * (planned.spec.gpus_per_node or 1)
    point = max(measured, key=lambda point: (point.devices == devices, point.devices))
    reached = f"{point.efficiency:.0%} on {named(point.devices, study.points[0]['kind'])}"
    links.link(
        "scaling", f"Reached {reached} in a scaling study", "launch_scaling", "chart", "tertiary", id=study.id
    )


def start(spec: RunSpec | None, like: str | None) -> None:
    """Show the button that measures the settings on several numbers of devices."""
    if (study_id := st.session_state.pop(REQUESTED, None)) is not None:
        links.go("scaling", id=study_id)
    with st.popover("Measure scaling", icon=":material/trending_up:", key="launch_study"):
        st.caption("Trains these settings on each number of devices, one run after another in the queue.")
        st.text_input("Numbers of devices", key=f"{PREFIX}gpus", placeholder="1,2,4,8 as far as they exist")
        st.segmented_control(
            "The batch that stays",
            list(MODES),
            default="weak",
            format_func=MODES.__getitem__,
            key=f"{PREFIX}mode",
        )
        st.number_input("Measured steps of each run", 1, 1_000_000, 100, key=f"{PREFIX}steps")
        st.button("Start the study", on_click=_request, args=(spec, like), disabled=spec is None)
    refusals.show(REFUSED)


def _request(spec: RunSpec | None, like: str | None) -> None:
    if spec is not None:
        refusals.attempt(lambda: _create(spec, like), REFUSED)


def _create(spec: RunSpec, like: str | None) -> None:
    sizes = [text.strip() for text in str(st.session_state[f"{PREFIX}gpus"] or "").split(",") if text.strip()]
    if not all(text.isdecimal() and 0 < int(text) <= 65536 for text in sizes):
        raise InvalidRequest("gpus", "Numbers of devices must be numbers, for example 1,2,4.")
    request = StudyRequest(
        spec=spec,
        gpus=[int(text) for text in sizes] or None,
        mode=st.session_state[f"{PREFIX}mode"] or "weak",
        steps=st.session_state[f"{PREFIX}steps"],
    )
    st.session_state[REQUESTED] = create(service.current(), request, like)
