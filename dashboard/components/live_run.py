"""The parts of the Run page that are pushed to the browser: header, charts and log."""

from __future__ import annotations

from importlib.resources import files

from streamlit.components.v2 import component


def text_of(package: str, name: str) -> str:
    """A file of a package, such as a style sheet."""
    return (files(package) / name).read_text(encoding="utf-8")


# Streamlit runs a component's script from a blob: address, from where nothing relative can be imported. So it gets
# these few lines, which find our modules beside Streamlit's own files, wherever a proxy has put both. All
# components import the same modules by the same addresses and thereby share one connection.
_LOADER = """
const own = document.querySelector('script[src*="/static/js/"]');
const base = own ? own.src.split('static/js/')[0] : document.baseURI;
export default async (component) => (await import(new URL('assets/MODULE', base).href)).mount(component);
"""


def loader(module: str) -> str:
    """The script that mounts one of our modules as a component."""
    return _LOADER.replace("MODULE", module)


_header = component(
    "rankzero.run_header",
    css=text_of("dashboard.components", "run_header/run_header.css"),
    js=loader("run_header/run_header.js"),
)
_charts = component(
    "rankzero.live_charts",
    css=text_of("uplot.static", "uPlot.min.css") + text_of("dashboard.components", "charts/charts.css"),
    js=loader("charts/charts.js"),
)
_log = component(
    "rankzero.log_view",
    css=text_of("dashboard.components", "logs/log_view.css"),
    js=loader("logs/log_view.js"),
)


def run_header(run_id: str, name: str, key: str | None = None) -> None:
    """A run's name, state, progress and figures, as they change."""
    _header(data={"run_id": run_id, "name": name}, key=key)


def live_charts(run_id: str, key: str | None = None) -> None:
    """All series of a run, drawn as they grow."""
    _charts(data={"run_id": run_id}, key=key)


def log_view(run_id: str, key: str | None = None) -> None:
    """The log of one rank, following."""
    _log(data={"run_id": run_id}, key=key)
