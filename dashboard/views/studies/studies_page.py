"""The Studies page: all sweeps and all scaling studies, or one of them, and the way to a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard.components import browser
from dashboard.service import service
from dashboard.views.layout import actions, links, permissions, style
from dashboard.views.studies import scaling_part, sweep_part
from db.exceptions import NoSuchStudy
from db.people.ownership import project_of
from db.studies import studies
from db.studies.studies import AnyPlan, StudyView
from domain.launch.plan import program_name
from domain.people.roles import Action
from domain.scaling.plan import ScalingPlan
from domain.studies import StudyState
from domain.sweeps import SweepPlan
from domain.text.formats import ago, as_text


@dataclass(frozen=True)
class StudyPages:
    """What the pages of one kind of studies show."""

    plan: type[AnyPlan]
    address: str
    new: str
    """Opens the form's popover for a new one."""
    title: str
    question: str
    columns: Sequence[str]
    """Those between the name and the state, and the last one."""
    cells: Callable[[StudyView[Any]], Sequence[str]]
    state: Callable[[StudyView[Any]], StudyState]
    purpose: str
    how: str
    example: str
    words: Callable[[StudyView[Any]], str]
    """Says beside the state of a study what it trains."""
    more: Callable[[StudyView[Any]], None]
    """Shows links in the first line of a study."""
    show: Callable[[StudyView[Any]], None]
    """Shows what follows below the first line."""


SWEEPS = StudyPages(
    SweepPlan, "sweeps", "sweep", "Sweeps", "Which values train best?", ("Parameters", "Trials", "Best"),
    sweep_part.cells, sweep_part.state,
    "A sweep trains one spec with different parameters, each trial as a run in the queue, and names the best.",
    "Enter several values in a field on the Launch page, or start one from a terminal:",
    "rankzero sweep train.py --param lr=1e-4,3e-4,1e-3 --param accumulate=1,2 --metric val/loss",
    sweep_part.words, sweep_part.compare, sweep_part.show,
)  # fmt: skip
SCALING = StudyPages(
    ScalingPlan, "scaling", "study", "Scaling", "How much faster does a script train on more devices?",
    ("Devices", "Scaling", "Verdict"), scaling_part.cells, scaling_part.state,
    "A study trains the same spec on 1, 2, 4, … devices, one run after another in the queue, and shows what the "
    "additional devices bring and what limits them.",
    "Start one with *Measure scaling* on the Launch page, or from a terminal:",
    "rankzero scale train.py --gpus 1,2,4,8", scaling_part.words, lambda study: None, scaling_part.show,
)  # fmt: skip


@style.quiet_without_store
def page() -> None:
    """Show both lists."""
    _lists(SWEEPS, SCALING)


@style.quiet_without_store
def sweeps() -> None:
    """Show the sweep in the address, else all sweeps."""
    _study_or_list(SWEEPS)


@style.quiet_without_store
def scaling() -> None:
    """Show the scaling study in the address, else all of them."""
    _study_or_list(SCALING)


def _study_or_list(kind: StudyPages) -> None:
    study_id = st.query_params.get("id")
    if study_id is None:
        _lists(kind)
    else:
        _study(kind, study_id)


@style.quiet_without_store
def _lists(*kinds: StudyPages) -> None:
    style.refresh_within(5)
    for kind in kinds:
        _list(kind)
        st.space("small")


def _list(kind: StudyPages) -> None:
    """Show the studies of a kind, or what one is, and the way to a new one."""
    current = service.current()
    newest = studies.studies(current.store, kind.plan)
    links.list_head(kind.title, kind.question, f"New {kind.plan.noun}", kind.new)
    if not newest:
        links.nothing_listed(kind.purpose, kind.how, kind.example)
        return
    *before, last = kind.columns
    columns = (kind.plan.noun.capitalize(), *before, "State", "Started", last)
    rows = [_row(kind, study, current.clock()) for study in newest]
    browser.study({"label": kind.title, "columns": columns, "rows": rows}, key=f"{kind.address}_list")


def _row(kind: StudyPages, study: StudyView[Any], now: float) -> dict[str, object]:
    *before, last = kind.cells(study)
    cells = [program_name(study.spec), *before, kind.state(study), ago(study.created_at, now), last]
    return {"cells": cells, "at": 0, "address": links.address(kind.address, id=study.id)}


@style.quiet_without_store
def _study(kind: StudyPages, study_id: str) -> None:
    style.refresh_within(2)
    try:
        study = studies.study(service.current().store, study_id, kind.plan)
    except NoSuchStudy as error:
        st.error(as_text(str(error)))
        links.link("studies", "All studies", key="study_all")
        return
    state = kind.state(study)
    with st.container(horizontal=True, vertical_alignment="center", key="study_head"):
        st.header(as_text(program_name(study.spec)), anchor=False, width="content")
        words = f"{state}, {kind.words(study)}{as_text(permissions.signed(study.by))}"
        st.markdown(words, width="content")
        if state == "running":
            limits = permissions.limits(Action.STOP, project_of(study.spec), study.by)
            key = f"study_stop_{study.id}"
            st.button("Stop", icon=":material/stop_circle:", key=key, on_click=_stop, args=(study,), **limits)
        kind.more(study)
        links.link("studies", "All studies", key="study_all", kind="tertiary")
    if study.message:
        st.markdown(as_text(study.message))
    kind.show(study)


def _stop(study: StudyView[Any]) -> None:
    """End a study; another person's is asked about."""

    def stop() -> None:
        current = service.current()
        studies.request_stop(current.store, study.id, current.clock())

    actions.end_or_ask(study.plan.noun, study.id, study.by, "Stop", stop, no="Keep it going")
