"""Scaling in the form: the newest study of the same program, and a study of the settings as they are."""

from __future__ import annotations

import streamlit as st

from dashboard.planning.resolve import Resolved
from dashboard.service import service
from dashboard.studies.scaling_document import judgement
from dashboard.studies.scaling_request import StudyRequest, create
from dashboard.views.launch import kept_form
from dashboard.views.launch.fields import PREFIX
from dashboard.views.layout import actions, links
from db.studies import studies
from domain.requests.errors import InvalidRequest
from domain.scaling.points import named
from domain.spec import RunSpec

REFUSED = "study_refused"
SCALING_PREFIX = "study_"
MODES = {"weak": "of each rank", "strong": "of all ranks"}


def cite(planned: Resolved) -> None:
    """Cite the newest scaling study of the same program: its efficiency on as many devices, else on the most."""
    current, spec = service.current(), planned.submitted
    study = studies.latest_scaling_of(current.store, spec.target, spec.entry, spec.module)
    if study is None:
        return
    points = judgement(study, current.figures).points
    measured = [one for one in points if one.efficiency is not None and one.strategy == study.spec.strategy]
    if len({point.devices for point in measured}) < 2:
        return
    devices, batch = planned.spec.nodes * (planned.spec.gpus_per_node or 1), planned.spec.global_batch_size
    point = max(measured, key=lambda one: (one.devices == devices, one.devices, one.global_batch_size == batch))
    reached = f"{point.efficiency:.0%} on {named(point.devices, study.plan.points[0].kind)}"
    links.link("scaling", f"Reached {reached} in a scaling study", "launch_scaling", "chart", "tertiary", id=study.id)


def _fields() -> None:
    st.caption("Trains these settings on each number of devices, one run after another in the queue.")
    st.text_input("Numbers of devices", key=f"{SCALING_PREFIX}gpus", placeholder="1,2,4,8 as available")
    batches = st.text_input(
        "Global batches to compare",
        key=f"{SCALING_PREFIX}batches",
        placeholder="one; or 256,512,1024",
        live=True,
        help="Measures each on every number of devices over the same number of samples: where throughput stops "
        "growing, and where the loss gets worse.",
    )
    st.segmented_control(
        "The batch that stays",
        list(MODES),
        default="weak",
        format_func=MODES.__getitem__,
        key=f"{SCALING_PREFIX}mode",
        disabled=bool(batches),
        help="With global batches to compare, each of them stays." if batches else None,
    )
    st.number_input("Measured steps of each run", 1, 1_000_000, 100, key=f"{SCALING_PREFIX}steps")


def _create(spec: RunSpec, like: str | None) -> str:
    batches = _numbers("batches", "Global batches", 1_000_000_000, 16)
    request = StudyRequest(
        spec=spec,
        gpus=_numbers("gpus", "Numbers of devices", 65536, 32),
        global_batches=batches,
        mode=None if batches else st.session_state[f"{SCALING_PREFIX}mode"] or "weak",
        steps=st.session_state[f"{SCALING_PREFIX}steps"],
    )
    return create(service.current(), request, like)


def _numbers(field: str, label: str, most: int, most_numbers: int) -> list[int] | None:
    """Read a field of numbers between commas; None where it is empty. Raises InvalidRequest."""
    texts = [text.strip() for text in str(st.session_state[SCALING_PREFIX + field] or "").split(",") if text.strip()]
    if len(texts) > most_numbers:
        raise InvalidRequest(field, f"{label}: at most {most_numbers}.")
    if not all(text.isdecimal() and len(text) < 11 and 0 < int(text) <= most for text in texts):
        raise InvalidRequest(field, f"{label} must be numbers, for example 1,2,4.")
    return [int(text) for text in texts] or None


def popover(spec: RunSpec | None, like: str | None) -> None:
    """Show the popover that measures the settings on several sizes; after a study was created, open its page."""
    with st.popover("Measure scaling", icon=":material/trending_up:", key=f"{PREFIX}study", on_change="rerun"):
        _fields()
        # No callback: it would get the settings of the last drawing, which lack what was typed since.
        if st.button("Start the study", disabled=spec is None) and spec is not None:
            actions.attempt(lambda: kept_form.leave_for("scaling", id=_create(spec, like)), REFUSED)
        actions.show(REFUSED)
