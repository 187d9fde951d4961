"""The page of a project: its baseline and best run, its activity, and its runs."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.components.browser import project as draw
from dashboard.components.browser import runs_table
from dashboard.json_responses import document
from dashboard.service import service
from dashboard.service.cost_cache import CostCache
from dashboard.views.layout import absence, links, permissions, style
from dashboard.views.run import kept_checkpoints
from dashboard.views.runs_page import metrics
from db.engine import Store
from db.exceptions import NoSuchProject
from db.people.users import has_several
from db.people.visibility import Visibility, visibility
from db.runs import projects
from db.runs.projects import ChosenRun, ProjectView
from domain.messages import LIVE_STATES, State
from domain.people.roles import Action
from domain.text.formats import UNKNOWN, as_text, number

REFRESH_S = 5
ALL = "project_show_all"
VIEWS = CostCache[tuple[Store, str, Visibility], ProjectView]()
NO_BASELINE = "No baseline yet"


@style.quiet_without_store
def page() -> None:
    """Show the project in the address."""
    name = st.query_params.get("name", "")
    if not projects.exists(service.current().store, name):
        reason = f"No run is in a project {as_text(name[:80])}" if name else "The address names no project"
        absence.show(
            f"project {name}", "There is no such project", f"{reason}; its runs may have been moved or deleted."
        )
        return
    absence.seen(f"project {name}", name)
    st.set_page_config(page_title=f"{name} · Rankzero")
    _summary(name)
    if st.session_state.pop(ALL, False):
        links.go("runs")
    refusal = permissions.visitor().refusal(Action.ACT, name, permissions.visitor().by)
    filters: dict[str, Any] = {"project": name, "has_views": False} | metrics("", name)
    filters |= {"refusal": refusal} if refusal else {}
    if has_several(service.current().store):
        filters["has_people"] = True
    runs_table(filters, on_cleared=_show_all, on_changed=_ignore, on_viewed=_ignore, key="project_runs")


@style.quiet_without_store
def _summary(name: str) -> None:
    style.refresh_within(REFRESH_S)
    store, now = service.current().store, service.current().clock()
    try:
        project = VIEWS.get((store, name, visibility()), lambda: projects.project(store, name, now))
    except NoSuchProject:  # its last run was deleted or moved meanwhile
        st.info("No run is in this project any more.", icon=":material/delete:")
        return
    _head(project)
    draw(_figures(project), document(project.weeks), key="project_figures")


def _figures(project: ProjectView) -> list[dict[str, Any]]:
    live = sum(project.runs.get(state, 0) for state in LIVE_STATES)
    counted = {"live": live, "failed": project.runs.get(State.FAILED, 0)}
    states = ", ".join(f"{count} {state_name}" for state_name, count in counted.items() if count)
    spent = sum(week.device_hours for week in project.weeks)
    return [
        _figure(
            "Baseline",
            _value(project, project.baseline),
            "" if project.baseline else NO_BASELINE,
            project.baseline,
        ),
        _figure("Best run", _value(project, project.best), _better(project), project.best),
        _figure("Runs", str(sum(project.runs.values())), states),
        _figure("Device-hours", number(spent), f"in {len(project.weeks)} weeks"),
    ]


def _figure(label: str, value: str, more: str, run: ChosenRun | None = None) -> dict[str, Any]:
    address = links.address("run", id=run.id) if run else None
    return {"label": label, "value": value, "more": more, "address": address, "name": run.name if run else ""}


def _value(project: ProjectView, run: ChosenRun | None) -> str:
    if run is None or run.value is None:
        return UNKNOWN
    return f"{project.metric} {number(run.value, 4)}"


def _better(project: ProjectView) -> str:
    """Return by how much the best run is better than the baseline, in words."""
    if project.best is None:
        return "no run has logged a loss or an accuracy"
    if project.baseline is not None and project.best.id == project.baseline.id:
        return "the baseline"
    better = project.better_percent
    if better is None:
        return ""
    return f"{number(abs(better), 2)} % {'better' if better >= 0 else 'worse'}"


def _head(project: ProjectView) -> None:
    title, actions = st.columns(2, vertical_alignment="center")
    title.title(as_text(project.name), anchor=False)
    with actions.container(horizontal=True, horizontal_alignment="right", key="project_links"):
        kept_checkpoints.project_rule(project.name)
        chosen = [one.id for one in (project.best, project.baseline) if one is not None]
        if len(set(chosen)) == 2:
            links.link(
                "compare", "Compare best with baseline", "project_compare", "chart",
                runs=",".join(chosen), baseline=chosen[1],
            )  # fmt: skip
        if not permissions.visitor().may(Action.LAUNCH, project.name):
            return
        if chosen:
            links.launch_again(chosen[0], "Launch", "project_launch", "launch", "primary")
        else:
            links.link("launch", "Launch", "project_launch", "launch", "primary")


def _ignore() -> None:
    """Do nothing: the table has one filter, and no views, which would have others."""


def _show_all() -> None:
    """Open the Runs page: all runs of this project are archived."""
    st.session_state[ALL] = True
