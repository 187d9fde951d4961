"""The Scaling page: the list of studies, or one study with its chart, points and verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard.components.browser import scaling
from dashboard.scaling.document import judgement, rate_rule, state
from dashboard.service import service
from dashboard.views.layout import actions, links, permissions, style
from dashboard.views.layout.links import address
from db.exceptions import NoSuchStudy
from db.people.ownership import project_of
from db.scaling import studies
from db.scaling.studies import Figures, StudyView
from domain.people.roles import Action
from domain.scaling.batches import GAIN_SHARE, LOSS_SHARE, BatchComparison, BatchFigures
from domain.scaling.judgement import RULE_OF_THUMB, Judgement
from domain.scaling.points import Point, named
from domain.text.formats import UNKNOWN, ago, as_list, as_text, count, learning_rate, number, plural


@style.quiet_without_store
def page() -> None:
    """Show the study in the address, else all studies."""
    study_id = st.query_params.get("id")
    if study_id is None:
        all_studies()
    else:
        _study(study_id)


EXAMPLE = "rankzero scale train.py --gpus 1,2,4,8"


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
    purpose = (
        "A study trains the same spec on 1, 2, 4, … devices, one run after another in the queue, and shows what the "
        "additional devices bring and what limits them."
    )
    how = "Start one with *Measure scaling* on the Launch page, or from a terminal:"
    links.nothing_listed(purpose, how, EXAMPLE)


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
        by = as_text(permissions.signed(study.by))
        st.markdown(f"{study_state}, {study.mode} scaling{batches_words(study)}, {length} a run{by}", width="content")
        if study_state == "running":
            limits = permissions.limits(Action.STOP, project_of(study.spec), study.by)
            key = f"scaling_stop_{study.id}"
            st.button("Stop", icon=":material/stop_circle:", key=key, on_click=_stop, args=(study,), **limits)
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


def _stop(study: StudyView) -> None:
    """End a study; another person's is asked about."""

    def stop() -> None:
        current = service.current()
        studies.request_stop(current.store, study.id, current.clock())

    actions.end_or_ask("study", study.id, study.by, "Stop", stop, no="Keep it going")


# A scaling study, and the list of all, as the component draws them.

STRATEGIES = {"ddp": "DDP", "dp": "DataParallel", "single": "a single process", "fsdp": "FSDP"}
SOURCE = "Commonly quoted for DDP on the GPUs of one machine: 1.8x on 2, 3.5x on 4, 6 to 7x on 8."
LIST = ("Study", "Devices", "Scaling", "State", "Started", "Verdict")
POINTS = ("Devices", "Nodes", "Strategy", "Run", "Samples/s", "Speed-up", "Efficiency", "Spread", "Limit")


def study_name(study: StudyView) -> str:
    """The name of a study: its run's name, module or script."""
    spec = study.spec
    return spec.name or spec.module or (spec.entry or spec.target).rpartition("/")[2]


def studies_picture(studies: Sequence[StudyView], figures: Figures, now: float) -> dict[str, Any]:
    """All studies as a table."""
    return {"columns": LIST, "rows": [_study_row(study, judgement(study, figures), now) for study in studies]}


def study_picture(study: StudyView, judged: Judgement) -> dict[str, Any]:
    """One study: its chart once something is measured, its global batches side by side, and its points as a table."""
    kind, has_batches = study.points[0]["kind"], judged.batches is not None
    return {
        "chart": _chart(judged.points, kind, has_batches),
        "batches": batches_table(judged, rate_rule(study), kind) if judged.batches else None,
        "columns": ("Global batch", *POINTS) if has_batches else POINTS,
        "rows": [_point_row(point, has_batches) for point in judged.points],
    }


def batches_words(study: StudyView) -> str:
    """Return the global batches of a study as the end of a phrase; nothing where it has only one."""
    batches = sorted({batch for point in study.points if (batch := point.get("global_batch_size"))})
    return f", global batches {as_list(map(count, batches), 5)}" if len(batches) > 1 else ""


def _study_row(study: StudyView, judged: Judgement, now: float) -> dict[str, Any]:
    sizes = ", ".join(str(size) for size in sorted({point["devices"] for point in study.points}))
    shown = (
        study_name(study),
        sizes,
        study.mode + batches_words(study),
        state(study, judged),
        ago(study.created_at, now),
    )
    cells = [*shown, judged.verdict or ""]
    return {"cells": cells, "at": 0, "address": address("scaling", id=study.id)}


def _point_row(point: Point, has_batches: bool) -> dict[str, Any]:
    cells = [
        *([count(point.global_batch_size)] if has_batches else []),
        str(point.devices),
        str(point.nodes),
        STRATEGIES.get(point.strategy, point.strategy),
        point.run or "",
        number(point.samples_per_s) if point.samples_per_s is not None else "",
        f"{point.speedup:.2f}x" if point.speedup is not None else "",
        f"{point.efficiency:.0%}" if point.efficiency is not None else "",
        f"{point.spread:.1%}" if point.spread is not None else "",
        point.limit or point.problem or "",
    ]
    run = {"at": 3 + has_batches, "address": address("run", id=point.run)} if point.run else {}
    return {"cells": cells, **run}


def _chart(points: Sequence[Point], kind: str, has_batches: bool) -> dict[str, Any] | None:
    measured = [point for point in points if point.speedup is not None]
    if not measured:
        return None
    base = min(measured, key=lambda point: (abs((point.speedup or 0) - 1), point.devices)).devices
    most = max(point.devices for point in measured)
    rule = [[size, *speedups] for size, speedups in RULE_OF_THUMB.items() if size <= most and base == 1]
    return {
        "points": [_drawn(point, base, kind, has_batches) for point in measured],
        "curves": _curves(measured, has_batches),
        "base": base,
        "rule": rule,
        "unit": "GPUs" if kind == "cuda" else "processes",
        "source": SOURCE,
    }


def _curves(points: Sequence[Point], has_batches: bool) -> list[dict[str, Any]]:
    """The curves of a chart: strategies, or global batches, whose `shade` grows from 0 to 1."""
    if not has_batches:
        return [{"id": one, "name": STRATEGIES.get(one, one)} for one in dict.fromkeys(p.strategy for p in points)]
    batches = sorted({point.global_batch_size or 0 for point in points})
    last = max(1, len(batches) - 1)
    return [
        {"id": str(batch), "name": f"global batch {count(batch)}", "shade": at / last}
        for at, batch in enumerate(batches)
    ]


def _drawn(point: Point, base: int, kind: str, has_batches: bool) -> dict[str, Any]:
    """A point of the chart; a global batch that was not measured on the `base` devices begins on the ideal line."""
    raised = (point.efficiency or 0) * point.devices / (base * (point.speedup or 1))
    speed = f", {number(point.samples_per_s)} samples/s" if point.samples_per_s is not None else ""
    batch = f"global batch {count(point.global_batch_size)}, " if has_batches else ""
    label = f"{batch}{named(point.devices, kind)}: {point.speedup:.2f}x, {point.efficiency:.0%}{speed}"
    return {
        "devices": point.devices,
        "curve": str(point.global_batch_size) if has_batches else point.strategy,
        "speedup": (point.speedup or 0) * raised,
        "low": (point.low or 0) * raised,
        "high": (point.high or 0) * raised,
        "label": label[0].upper() + label[1:],
    }


# The global batches of a study side by side: throughput by devices, learning rate and loss.

FLAT = f"A larger global batch gains less than {GAIN_SHARE:.0%} throughput on as many devices."
WORSE = "The loss is higher than with a smaller batch after the same number of samples."
NOTE = (
    "Samples per second, and the efficiency against the fewest devices with the same global batch. "
    f"flat: from here on a larger batch gains less than {GAIN_SHARE:.0%}."
)
NOTE_ON_LOSS = f" worse: more than {LOSS_SHARE:.0%} above the lowest loss of smaller batches after as many samples."


def batches_table(judged: Judgement, rate_rule: str, kind: str) -> dict[str, Any] | None:
    """Return the table: a column for each global batch, a row for each number of devices, then rate and loss.

    A cell is `text` with its `mark` and `title`."""
    batches = judged.batches
    if batches is None:
        return None
    devices = sorted({point.devices for point in judged.points})
    sizes = [one.global_batch_size for one in batches.batches]
    return {
        "columns": ["Global batch", *map(count, sizes)],
        "best": next((at for at, batch in enumerate(sizes, 1) if batch == batches.best), 0),
        "note": NOTE + (NOTE_ON_LOSS if batches.loss_name else ""),
        "rows": [
            *(_throughput(judged.points, batches, size, kind) for size in devices),
            _row(f"Learning rate ({rate_rule})", [learning_rate(one.lr) for one in batches.batches]),
            *([_losses(batches)] if batches.loss_name else []),
        ],
    }


def runs_of_batches(points: Sequence[Point]) -> list[str]:
    """Return a measured run of each global batch, those on the most devices."""
    measured = [point for point in points if point.run and point.speedup is not None]
    by_batch = {point.global_batch_size: point.run for point in sorted(measured, key=lambda one: one.devices)}
    return [run for _, run in sorted((batch or 0, run or "") for batch, run in by_batch.items())]


def _throughput(points: Sequence[Point], batches: BatchComparison, devices: int, kind: str) -> dict[str, Any]:
    by_batch = {one.global_batch_size: one for one in points if one.devices == devices}
    flat = batches.flat_from.get(devices)
    cells = []
    for one in batches.batches:
        point = by_batch.get(one.global_batch_size)
        cell = {"text": _speed(point)}
        if one.global_batch_size == flat:
            cell |= {"mark": "flat", "title": FLAT}
        cells.append(cell)
    return {"title": f"Samples/s on {named(devices, kind)}", "cells": cells}


def _speed(point: Point | None) -> str:
    if point is None or point.speedup is None:
        return "failed" if point and point.problem else UNKNOWN
    speed = number(point.samples_per_s) if point.samples_per_s is not None else f"{point.speedup:.2f}x"
    return f"{speed} · {point.efficiency:.0%}"


def _losses(batches: BatchComparison) -> dict[str, Any]:
    cells = []
    for one in batches.batches:
        cell = {"text": _loss(one)}
        if one.is_worse:
            cell |= {
                "mark": "worse",
                "title": WORSE,
            }
        cells.append(cell)
    return {"title": f"{batches.loss_name} after {number(batches.samples)} samples", "cells": cells}


def _loss(one: BatchFigures) -> str:
    if one.loss is None:
        return UNKNOWN
    if not math.isfinite(one.loss):
        return "not finite"
    change = f" · {one.loss_change:+.0%}" if one.loss_change is not None and math.isfinite(one.loss_change) else ""
    return number(one.loss) + change


def _row(title: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"title": title, "cells": [{"text": text} for text in texts]}
