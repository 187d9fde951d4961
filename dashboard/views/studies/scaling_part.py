"""A scaling study on the Studies page: what it measures in words, its verdict, and the way to its losses."""

from __future__ import annotations

import streamlit as st

from dashboard.components import browser
from dashboard.service import service
from dashboard.studies import scaling_document
from dashboard.views.layout import links
from dashboard.views.studies.scaling_picture import runs_of_batches, study_picture
from db.studies.studies import ScalingView
from domain.scaling.judgement import Judgement
from domain.studies import StudyState
from domain.text.formats import as_list, as_text, count, number, plural


def cells(study: ScalingView) -> tuple[str, str, str]:
    """Return its numbers of devices, its mode, and the verdict or why it ended."""
    sizes = sorted({point.devices for point in study.plan.points})
    verdict = _judged(study).verdict or study.message or ""
    return ", ".join(map(str, sizes)), study.plan.mode + _batches(study), verdict


def state(study: ScalingView) -> StudyState:
    """Return its state."""
    return scaling_document.state(study, _judged(study))


def words(study: ScalingView) -> str:
    """Return its mode, its global batches, and how long its runs are."""
    batches = _judged(study).batches
    length = f"{number(batches.samples)} samples" if batches else plural(study.plan.steps, "step")
    return f"{study.plan.mode} scaling{_batches(study)}, {length} a run"


def show(study: ScalingView) -> None:
    """Show the verdict, chart and points, and the link to the losses of several global batches."""
    judged = _judged(study)
    if judged.verdict:
        st.markdown(f"**{as_text(judged.verdict)}**")
    browser.study(study_picture(study, judged), key="scaling_study")
    if judged.batches and judged.batches.loss_name:
        runs, label = ",".join(runs_of_batches(judged.points)), "Compare their losses by samples"
        links.link("compare", label, "scaling_compare", "chart", "tertiary", runs=runs, x="samples")


def _judged(study: ScalingView) -> Judgement:
    return scaling_document.judgement(study, service.current().figures)


def _batches(study: ScalingView) -> str:
    """Return the global batches of a study as the end of a phrase; nothing where it has only one."""
    batches = sorted({batch for point in study.plan.points if (batch := point.global_batch_size)})
    return f", global batches {as_list(map(count, batches), 5)}" if len(batches) > 1 else ""
