"""The components that the browser draws by itself: Streamlit passes names and settings, never points or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from domain.text.formats import size
from domain.views import RunView


def browser_component(name: str, module: str, css: str = "") -> Callable[..., Any]:
    """Register the component that a script and style sheet of this folder draw, after a further style sheet."""
    css = style("elements/component") + css + style(module)
    return component(f"rankzero.{name}", css=css, js=_LOADER.replace("MODULE", module))


# Streamlit runs a component's script from a blob: address, from where nothing relative can be imported. So it gets
# these few lines, which find our modules beside Streamlit's own files, wherever a proxy has put both. All
# components import the same modules by the same addresses and so share one connection.
_LOADER = """
const own = document.querySelector('script[src*="/static/js/"]');
const base = own ? own.src.split('static/js/')[0] : document.baseURI;
export default async (component) => (await import(new URL('assets/MODULE.js', base).href)).mount(component);
"""


def style(module: str) -> str:
    """The style sheet of that name."""
    return (files("dashboard.components") / f"{module}.css").read_text(encoding="utf-8")


_cells = browser_component("cells", "cluster/cells")
_plot_css = (files("uplot.static") / "uPlot.min.css").read_text(encoding="utf-8")
_charts = browser_component("live_charts", "charts/charts", _plot_css)
_plots_css = style("plots/plots")
_changes = component("rankzero.run_changes", js=_LOADER.replace("MODULE", "live/run_changes"))
_compare = browser_component("compare", "compare/compare", _plot_css + style("charts/charts") + _plots_css)
_flame = browser_component("flame_graph", "run/flame")
_pill_css = style("elements/state_pill")
_header = browser_component("run_header", "run/run_header", _pill_css)
_finder = browser_component("log_finder", "logs/log_finder")
_link = browser_component("page_link", "links/links")
_log = browser_component("log_view", "logs/log_view")
_permission = browser_component("notification_permission", "entry/notifications")
_phases = browser_component("phases", "run/phases")
_preflight = browser_component("preflight", "cluster/preflight")
_project = browser_component("project", "runs/project")
_refresh = component("rankzero.refresh", js=_LOADER.replace("MODULE", "live/refresh"))
_kept_form = component("rankzero.kept_form", js=_LOADER.replace("MODULE", "launch/kept_form"))
_search = browser_component("search_field", "runs/search_field")
_study = browser_component("study", "studies/studies", _plots_css + style("studies/table"))
_table = browser_component("runs_table", "runs/runs_table", style("runs/selection") + _pill_css)
_tensors = browser_component("tensors", "tensors/tensors", _plots_css + style("studies/table"))
_timeline = browser_component("timeline", "run/timeline")
_upload = browser_component("upload_code", "launch/upload_code")


def run_header(run_id: str, name: str, key: str | None = None, *, has_people: bool = False) -> None:
    """Draw a run's name, state, progress and figures, as they change; `has_people`: also its owner."""
    _header(data={"run_id": run_id, "name": name, "has_people": has_people}, key=key)


def run_changes(run: RunView, *, follows_steps: bool) -> None:
    """Draw the page again when the run is no longer as shown, or has news; `follows_steps`: also while it steps."""
    values = {
        "state": run.state,
        "has_step": bool(run.step),
        "is_broken": run.loss_not_finite_since is not None,
        "is_sending": run.delivery is not None,
    }
    steps = {"step": run.step} if follows_steps else {}
    _changes(
        data={"run_id": run.id, "values": values | steps}, key="run_changes", on_changed_change=_rerun, width="content"
    )


def refresh(every_s: float | None, trouble: str) -> None:
    """Draw the page again every `every_s` seconds while it is seen, and when the server's trouble is not this."""
    _refresh(data={"every_s": every_s, "trouble": trouble}, key="refresh", on_changed_change=_rerun, width="content")


IS_REDRAW = "is_redraw"
"""In the session: whether the page asked for this run, not its visitor."""


def _rerun() -> None:
    """Note that the page is drawn again by itself: what the visitor's last action left on it stays."""
    st.session_state[IS_REDRAW] = True


def live_charts(run_id: str, key: str | None = None) -> None:
    """Draw all series of a run as they grow."""
    _charts(data={"run_id": run_id}, key=key)


def compare(runs: Sequence[Mapping[str, str]], key: str) -> None:
    """Draw all series of these runs (`id`, `name`, `state`), a chart a series, and what differs between the runs."""
    _compare(data={"runs": [dict(run) for run in runs]}, key=key)


def log_view(run_id: str, key: str | None = None) -> None:
    """Draw the log of one rank, following."""
    _log(data={"run_id": run_id}, key=key)


def log_finder(key: str) -> None:
    """Draw a search in the logs of all runs; what is searched for is in the address."""
    _finder(data={}, key=key)


def phases(run_id: str, key: str | None = None) -> None:
    """Draw what the ranks of a run spend their steps on, over time."""
    _phases(data={"run_id": run_id}, key=key)


def cells(selected: str | None, on_picked: Callable[[], None], key: str) -> None:
    """Draw the cluster; a click on a node leaves its id (or "" for none) under `key` as `picked`."""
    _cells(data={"selected": selected}, key=key, on_picked_change=on_picked)


def preflight(check: Mapping[str, Any], key: str) -> None:
    """Draw the matrix of `dashboard.cluster.preflights`; a newer one under the same key changes what differs."""
    _preflight(data={"check": dict(check)}, key=key)


def timeline(start: Mapping[str, Any], key: str) -> None:
    """Draw the phases of a run's start, one bar per node; newer ones under the same key change what differs."""
    _timeline(data=dict(start), key=key)


def study(picture: Mapping[str, Any], key: str) -> None:
    """Draw a scaling study or a list of studies, of which newer ones change what differs; or the sweep `sweep_id`."""
    _study(data=dict(picture), key=key)


def tensors(task_id: int, key: str) -> None:
    """Draw the result of a task that read a checkpoint's tensors, or compared those of two."""
    _tensors(data={"task_id": task_id}, key=key)


def project(figures: Sequence[Mapping[str, Any]], weeks: Sequence[Mapping[str, Any]], key: str) -> None:
    """Draw a project's figures, and its runs and device-hours week by week (`db.runs.projects.Week`)."""
    _project(data={"figures": list(figures), "weeks": list(weeks)}, key=key)


def flame_graph(path: str, key: str) -> None:
    """Draw the flame graph that the server gives at this path."""
    _flame(data={"path": path}, key=key)


def runs_table(
    filters: Mapping[str, Any],
    on_cleared: Callable[[], None],
    on_changed: Callable[[], None],
    on_viewed: Callable[[], None],
    key: str,
) -> None:
    """Draw the matching runs; `on_cleared` follows when the filters are removed, `on_changed` the very first run,
    and the deletion or return of several.

    The filters of a saved view are `viewed` under `key`."""
    _table(
        data=dict(filters),
        key=key,
        on_cleared_change=on_cleared,
        on_changed_change=on_changed,
        on_viewed_change=on_viewed,
    )


def search_field(search: Mapping[str, Any], on_typed: Callable[[], None], key: str) -> None:
    """Draw the field for a search, which it completes; what is typed is the `text` of `typed` under `key`."""
    _search(data=dict(search), key=key, on_typed_change=on_typed)


def kept_form(form: Mapping[str, Any], on_kept: Callable[[], None], key: str) -> None:
    """Have the tab keep `values`, or hand back what it kept to the session `asked_by`: as `kept` under `key`."""
    _kept_form(data=dict(form), key=key, on_kept_change=on_kept, width="content")


def upload_code(name: str, limit_bytes: int, on_uploaded: Callable[[], None], key: str) -> None:
    """Draw the field for a file with code, which is uploaded at once; the result is `uploaded` under `key`."""
    data = {"name": name, "limit_bytes": limit_bytes, "limit": size(limit_bytes)}
    _upload(data=data, key=key, on_uploaded_change=on_uploaded)


def notification_permission(key: str) -> None:
    """Draw whether this browser shows notifications, and the button that asks for it."""
    _permission(data={}, key=key)


def page_link(address: str, key: str, **look: str | None) -> None:
    """Draw a link that looks like a button; without a label the browser opens the address now."""
    _link(data={"label": None, "address": address} | look, key=key, width="content")
