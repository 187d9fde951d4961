"""The Scaling page: the list of studies, or one study with its chart, points and verdict."""

from __future__ import annotations

import streamlit as st

from dashboard.components.browser import scaling
from dashboard.scaling.document import judgement, state
from dashboard.service import service
from dashboard.views.layout import links, refusals, style
from dashboard.views.scaling.batches import runs_of_batches
from dashboard.views.scaling.picture import batches_words, studies_picture, study_name, study_picture
from db.exceptions import NoSuchStudy
from db.scaling import studies
from domain.text.formats import as_text, number, plural

EXAMPLE = "rankzero scale train.py --gpus 1,2,4,8"


@style.quiet_without_store
def page() -> None:
    """Show the study in the address, else all studies."""
    study_id = st.query_params.get("id")
    if study_id is None:
        all_studies()
    else:
        _study(study_id)


@style.refreshed(5)
@style.quiet_without_store
def all_studies() -> None:
    """Show the list of studies, or what a study is, and the way to a new one."""
    current = service.current()
    newest = studies.studies(current.store)
    links.list_head("Scaling", "How much faster does a script train on more devices?", "New scaling study", "study")
    if newest:
        scaling(studies_picture(newest, current.figures, current.clock()), key="scaling_list")
        return
    st.markdown(
        "A study trains the same spec on 1, 2, 4, … devices, one run after another in the queue, and shows what the "
        "additional devices bring and what limits them. Start one with *Measure scaling* on the Launch page, or from a "
        "terminal:"
    )
    st.code(EXAMPLE, language=None, wrap_lines=True)


@style.refreshed(2)
@style.quiet_without_store
def _study(study_id: str) -> None:
    current = service.current()
    try:
        study = studies.study(current.store, study_id)
    except NoSuchStudy as error:
        st.error(as_text(str(error)))
        links.link("studies", "All studies", key="scaling_all")
        return
    judged = judgement(study, current.figures)
    study_state = state(study, judged)
    with st.container(horizontal=True, vertical_alignment="center", key="scaling_head"):
        st.header(as_text(study_name(study)), anchor=False, width="content")
        length = f"{number(judged.batches.samples)} samples" if judged.batches else plural(study.steps, "step")
        st.markdown(f"{study_state}, {study.mode} scaling{batches_words(study)}, {length} a run", width="content")
        if study_state == "running":
            st.button("Stop", icon=":material/stop_circle:", key="scaling_stop", on_click=_stop, args=(study.id,))
        links.link("studies", "All studies", key="scaling_all", kind="tertiary")
    if judged.verdict:
        st.markdown(f"**{as_text(judged.verdict)}**")
    scaling(study_picture(study, judged), key="scaling_study")
    if judged.batches and judged.batches.loss_name:
        runs = ",".join(runs_of_batches(judged.points))
        links.link(
            "compare",
            "Compare their losses by samples",
            "scaling_compare",
            "chart",
            "tertiary",
            runs=runs,
            x="samples",
        )


@refusals.told
def _stop(study_id: str) -> None:
    current = service.current()
    studies.request_stop(current.store, study_id, current.clock())
