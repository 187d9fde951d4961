"""A report of a run or a comparison: one HTML file that opens without us, without a network and without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version

from dashboard.compare import runs as comparing
from dashboard.errors import Rejection
from dashboard.exports import report_tables as tables
from dashboard.exports.chart import ChartLine, chart
from dashboard.exports.elements import Element, change_texts, element, written
from dashboard.exports.report_style import policy, style_sheet
from dashboard.service.service import Service
from dashboard.snapshots.differences import FileChange
from db.metrics import many_curves
from db.metrics.many_curves import StepRange
from db.metrics.series_names import main_loss
from domain.messages import SCRIPT_KINDS
from domain.text.formats import clock_time, plural
from domain.text.paths import without_folders
from domain.views import RunView

MOST_RUNS = 50
MOST_CHARTS = 60
CURVE_POINTS = 500
MOST_DIFF_CHARACTERS = 200_000
"""Of the code differences of one run."""


def report(service: Service, run_ids: Sequence[str], shared_until: float | None = None) -> bytes:
    """Return the report as HTML; of a link that is valid until a time, it holds neither code nor folders.

    Raises NoSuchRun, Rejection for too many runs."""
    if len(run_ids) > MOST_RUNS:
        raise Rejection(422, f"A report shows at most {MOST_RUNS} runs, got {len(run_ids)}: choose some.", "runs")
    runs = [service.run(run_id) for run_id in run_ids]
    style = style_sheet(run_ids)
    title = runs[0].name if len(runs) == 1 else f"Comparison of {len(runs)} runs"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} · Rankzero"),
        element("style", style),
    )
    content = _content(service, runs, with_code=shared_until is None)
    body = element("body", element("h1", title), *content, _footer(service, shared_until))
    page = element("html", head, body, lang="en")
    if shared_until is not None:
        known = [path for run in runs for path in _paths(run)]
        change_texts(page, lambda text: without_folders(text, known))
    return written(page).encode(errors="replace")


def _paths(run: RunView) -> Iterator[str]:
    """Yield the paths in a run's settings: a stranger is told nothing of the folders of the machine."""
    spec = run.spec
    yield from filter(None, (spec.target, spec.workdir, spec.python))
    yield from spec.links.values()


def report_policy(run_ids: Sequence[str]) -> str:
    """Return the Content-Security-Policy of a report of these runs."""
    return policy(style_sheet(run_ids))


def _content(service: Service, runs: Sequence[RunView], with_code: bool) -> Iterator[Element]:
    if len(runs) == 1:
        yield from _run(service, runs[0])
        return
    yield tables.runs_table(runs)
    yield from _remarks(service, runs)
    yield from _charts(service, runs)
    yield from _section("Results", tables.results_table(service, runs))
    yield from _section("What differs", tables.differences_table(service, runs))
    if with_code:
        yield from _section("Code", *_code(service, runs))


def _run(service: Service, run: RunView) -> Iterator[Element]:
    if run.message:
        yield element("p", run.message, class_="failed" if run.state == "failed" else "muted")
    yield tables.facts(run)
    if run.note:
        yield element("p", run.note, class_="note")
    yield from _section("Findings", *tables.findings_list(service, run))
    traceback = (run.error or {}).get("traceback")
    yield from _section("Traceback", element("pre", str(traceback), tabindex=0) if traceback else None)
    yield from _charts(service, [run])
    yield from _section("Results", tables.results_table(service, [run]))
    yield from _section("Settings", tables.settings_table(run))
    yield from _section("Checkpoints", tables.checkpoints_table(service, run))
    yield from _section("History", tables.history_table(service, run))


def _section(title: str, *content: Element | None) -> Iterator[Element]:
    """Yield the heading and the content, or nothing where there is none."""
    present = [part for part in content if part is not None]
    if present:
        yield element("h2", title)
        yield from present


def _remarks(service: Service, runs: Sequence[RunView]) -> Iterator[Element]:
    """Yield the message, the note and the findings of each run that has some."""
    for place, run in enumerate(runs):
        message = element("p", run.message, class_="failed") if run.message and run.state == "failed" else None
        note = element("p", run.note, class_="note") if run.note else None
        remarks = [part for part in (message, note, *tables.findings_list(service, run)) if part is not None]
        if remarks:
            yield element("h3", tables.name_of(run, place))
            yield from remarks


def _charts(service: Service, runs: Sequence[RunView]) -> Iterator[Element]:
    names = _names(service, runs)
    figures = [figure for name in names[:MOST_CHARTS] if (figure := _chart(service, runs, name)) is not None]
    more = len(names) - MOST_CHARTS
    note = element("p", f"{plural(more, 'further series', 'further series')}: an export as CSV has all.")
    content = element("div", *figures, class_="charts") if figures else None
    empty = element("p", "Nothing was logged that a curve could show.", class_="muted")
    yield from _section("Curves", content or empty, note if more > 0 else None)


def _names(service: Service, runs: Sequence[RunView]) -> list[str]:
    """Return the names of the series that scripts logged, the training loss first."""
    by_run = many_curves.sources(service.store, [run.id for run in runs])
    names = {name for of_run in by_run.values() for name, source in of_run.items() if source in SCRIPT_KINDS}
    first = main_loss(names)
    return sorted(names, key=lambda name: (name != first, "loss" not in name.lower(), name))


def _chart(service: Service, runs: Sequence[RunView], name: str) -> Element | None:
    places = {run.id: place for place, run in enumerate(runs)}
    curves = many_curves.curves(service.store, list(places), [name], CURVE_POINTS, StepRange())
    lines = [
        ChartLine(places[curve.run_id], runs[places[curve.run_id]].name, curve.columns[0], curve.columns[1])
        for curve in curves
        if curve.columns.shape[1]
    ]
    return chart(name, lines)


def _code(service: Service, runs: Sequence[RunView]) -> Iterator[Element]:
    """Yield the code's differences of each run from the first."""
    first = runs[0]
    for place, run in enumerate(runs[1:], start=1):
        comparison = comparing.code(service, first, run)
        yield element("h3", "From ", tables.name_of(first, 0), " to ", tables.name_of(run, place))
        verdicts = {True: "The same code.", False: "Different code.", None: "The code cannot be compared."}
        yield element("p", f"{verdicts[comparison.same]} {comparison.note or ''}")
        yield from _files(comparison.difference.files)


def _files(files: Sequence[FileChange]) -> Iterator[Element]:
    left = MOST_DIFF_CHARACTERS
    for file in files:
        summary = f"{file.name}: {file.kind}, +{file.lines_added} −{file.lines_removed}"
        omitted = file.omitted or ("its lines are left out here" if len(file.lines) > left else None)
        left -= 0 if omitted else len(file.lines)
        lines = None if omitted or not file.lines else element("pre", *_diff(file.lines), tabindex=0)
        yield element("p", f"{summary} ({omitted})" if omitted else summary)
        if lines is not None:
            yield lines


def _diff(lines: str) -> Iterator[Element | str]:
    signs = {"+": "ins", "-": "del"}
    for line in lines.splitlines(keepends=True):
        yield element(signs[line[0]], line) if line[0] in signs else line


def _footer(service: Service, shared_until: float | None) -> Element:
    written = f"Written by Rankzero {version('rankzero')} on {clock_time(service.clock())} UTC."
    if shared_until is not None:
        written += f" Reload it for newer figures; the link is valid until {clock_time(shared_until)} UTC."
    return element("p", written, class_="muted")
