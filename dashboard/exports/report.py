"""A report of a run or a comparison: one HTML file that opens without us, without a network and without scripts."""

from __future__ import annotations

import base64
import colorsys
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from dashboard.compare import runs as comparing
from dashboard.compare.joined_series import own_names
from dashboard.errors import Rejection
from dashboard.exports import report_tables as tables
from dashboard.exports.chart import ChartLine, chart
from dashboard.exports.elements import Element, change_texts, element, written
from dashboard.service.service import Service
from dashboard.snapshots.differences import FileChange
from db.metrics.curves import StepRange, curves_of_runs
from db.metrics.series_names import main_loss
from domain.text.formats import clock_time, plural
from domain.text.paths import without_folders
from domain.views import RunView


def report(service: Service, run_ids: Sequence[str], shared_until: float | None = None) -> bytes:
    """Return the report as HTML; of a link that is valid until a time, it holds neither code, folders nor people, and
    refreshes itself until its runs have ended.

    Raises NoSuchRun, Rejection for too many runs."""
    if len(run_ids) > MOST_RUNS:
        raise Rejection(422, f"A report shows at most {MOST_RUNS} runs, got {len(run_ids)}: choose some.", "runs")
    runs = [service.run(run_id) for run_id in run_ids]
    is_live = shared_until is not None and not all(run.state.is_terminal for run in runs)
    style = style_sheet(run_ids)
    title = runs[0].name if len(runs) == 1 else f"Comparison of {len(runs)} runs"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        *([element("meta", http_equiv="refresh", content=str(REFRESHED_EVERY_S))] if is_live else []),
        element("title", f"{title} · Rankzero"),
        element("style", style),
    )
    content = _content(service, runs, is_shared=shared_until is not None)
    body = element("body", element("h1", title), *content, _footer(service, shared_until, is_live))
    page = element("html", head, body, lang="en")
    if shared_until is not None:
        paths = [path for run in runs for path in _paths(run)]
        change_texts(page, lambda text: without_folders(text, paths))
    return written(page).encode(errors="replace")


REFRESHED_EVERY_S = 20
MOST_RUNS = 50
MOST_CHARTS = 60
CURVE_POINTS = 500
MOST_DIFF_CHARACTERS = 200_000
"""Of the code differences of one run."""


def _paths(run: RunView) -> Iterator[str]:
    """Yield the paths in a run's settings: a stranger is told nothing of the folders of the machine."""
    spec = run.spec
    yield from filter(None, (spec.target, spec.workdir, spec.python))
    yield from spec.links.values()


def report_policy(run_ids: Sequence[str]) -> str:
    """Return the Content-Security-Policy of a report of these runs."""
    return policy(style_sheet(run_ids))


def _content(service: Service, runs: Sequence[RunView], is_shared: bool) -> Iterator[Element]:
    if len(runs) == 1:
        yield from _run(service, runs[0], is_shared)
        return
    yield tables.runs_table(runs)
    yield from _remarks(service, runs)
    yield from _charts(service, runs)
    yield from _section("Results", tables.results_table(service, runs))
    yield from _section("What differs", tables.differences_table(service, runs))
    if not is_shared:
        yield from _section("Code", *_code(service, runs))


def _run(service: Service, run: RunView, is_shared: bool) -> Iterator[Element]:
    if run.message:
        yield element("p", run.message, class_="failed" if run.state == "failed" else "muted")
    yield tables.facts(run, not is_shared)
    if run.note:
        yield element("p", run.note, class_="note")
    yield from _section("Findings", *tables.findings_list(service, run))
    traceback = (run.error or {}).get("traceback")
    yield from _section("Traceback", element("pre", str(traceback), tabindex=0) if traceback else None)
    yield from _charts(service, [run])
    yield from _section("Results", tables.results_table(service, [run]))
    yield from _section("Settings", tables.settings_table(run))
    yield from _section("Checkpoints", tables.checkpoints_table(service, run))
    yield from _section("History", tables.history_table(service, run, not is_shared))


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
    own = own_names(service.store, [run.id for run in runs])
    names = _ordered(own)
    drawn = (_chart(service, runs, name, own[name]) for name in names[:MOST_CHARTS])
    figures = [figure for figure in drawn if figure is not None]
    more = len(names) - MOST_CHARTS
    note = element("p", f"{plural(more, 'further series', 'further series')}: an export as CSV has all.")
    content = element("div", *figures, class_="charts") if figures else None
    empty = element("p", "Nothing was logged that a curve could show.", class_="muted")
    yield from _section("Curves", content or empty, note if more > 0 else None)


def _ordered(names: Collection[str]) -> list[str]:
    """Return the names of series in the order of their charts, the training loss first."""
    first = main_loss(names)
    return sorted(names, key=lambda name: (name != first, "loss" not in name.lower(), name))


def _chart(service: Service, runs: Sequence[RunView], name: str, own: Mapping[str, str]) -> Element | None:
    """Return the chart of a series that each run logs under its own name."""
    places = {run.id: place for place, run in enumerate(runs)}
    curves = curves_of_runs(service.store, list(own), set(own.values()), CURVE_POINTS, StepRange())
    lines = [
        ChartLine(places[curve.run_id], runs[places[curve.run_id]].name, curve.columns[0], curve.columns[1])
        for curve in curves
        if curve.columns.shape[1] and curve.name == own[curve.run_id]
    ]
    others = sorted({*own.values()} - {name})
    return chart(f"{name}, includes {', '.join(others)}" if others else name, lines)


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


def _footer(service: Service, shared_until: float | None, is_live: bool) -> Element:
    written = f"Written by Rankzero {version('rankzero')} on {clock_time(service.clock())} UTC."
    if is_live:
        written += f" It refreshes itself every {REFRESHED_EVERY_S} s until its runs have ended."
    if shared_until is not None:
        written += f" The link is valid until {clock_time(shared_until)} UTC."
    return element("p", written, class_="muted")


# The look of a report: one style sheet, in the browser's theme, for the screen and for paper.

_RULES = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 16px 48px; max-width: 1240px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 8px; }
h3 { font-size: 15px; margin: 16px 0 4px; } p { margin: 4px 0; }
.muted, figcaption, th, text { color: var(--muted); fill: var(--muted); }
.failed { color: var(--bad); } .note { white-space: pre-wrap; border-left: 3px solid var(--line); padding-left: 12px; }
.scrolls { overflow-x: auto; } table { border-collapse: collapse; overflow-wrap: break-word;
  font-variant-numeric: tabular-nums; }
th { font-weight: 500; } th, td { text-align: left; vertical-align: top; padding: 4px 16px 4px 0;
  border-bottom: 1px solid var(--line); min-width: 56px; max-width: 420px; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(320px, 100%), 1fr)); gap: 16px 24px; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: 14px; }
svg { display: block; width: 100%; height: auto; }
svg.swatch { display: inline-block; width: 12px; height: 12px; margin-right: 6px; } text { font-size: 11px; }
.grid { stroke: var(--line); } .curve { fill: none; stroke-width: 1.6;
  stroke-linejoin: round; stroke-linecap: round; }
pre { overflow-x: auto; padding: 12px; background: var(--raised); font: 13px/1.45 ui-monospace, monospace;
  overflow-wrap: normal; max-height: 480px; }
ins { color: var(--good); text-decoration: none; } del { color: var(--bad); text-decoration: none; }
@media print { pre { max-height: none; white-space: pre-wrap; } }
"""
_THEMES = {
    "light": "--back: #fff; --text: #1c2033; --muted: #555b70; --line: #dfe2ec; --raised: #f4f5fa; "
    "--bad: #b3261e; --good: #1d6b34;",
    "dark": "--back: #12141c; --text: #e4e7f2; --muted: #a4abc0; --line: #343848; --raised: #1b1e2a; "
    "--bad: #ff9a92; --good: #7fd79a;",
}


def style_sheet(run_ids: Sequence[str]) -> str:
    """Return the style sheet of a report of these runs."""
    light, dark = (f":root {{ {_THEMES[theme]} {_colours(theme, run_ids)} }}" for theme in ("light", "dark"))
    classes = "".join(f".c{place} {{ stroke: var(--c{place}); }}\n" for place in range(len(run_ids)))
    scheme = ":root { color-scheme: light dark; }"
    return f"\n{scheme}\n{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{classes}{_RULES}"


def policy(style: str) -> str:
    """Return a Content-Security-Policy that allows this style sheet and nothing else: no script, no request."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _colours(theme: str, run_ids: Sequence[str]) -> str:
    numbers = enumerate(colour_numbers(run_ids))
    return " ".join(f"--c{place}: {_colour(number, theme)};" for place, number in numbers)


def _colour(number: int, theme: str) -> str:
    """Return the colour of a number, as the pages choose it."""
    if number < len(PALETTE[theme]):
        return str(PALETTE[theme][number])
    is_dark, percent = theme == "dark", 60 if theme == "dark" else 45
    while True:
        channels = colorsys.hls_to_rgb(number * PALETTE["hue_step"] % 360 / 360, percent / 100, 0.62)
        if _luminance(channels) >= 0.2 if is_dark else _luminance(channels) <= 0.28:
            return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)
        percent += 2 if is_dark else -2


def _luminance(channels: tuple[float, float, float]) -> float:
    """Return the relative luminance, as WCAG defines it."""
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# The colours of runs that stand together, of the palette that `theme.js` reads on the pages.

_FILE = files("dashboard.components") / "elements/palette.json"
PALETTE: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
"""Colours in the `light` and the `dark` theme, distinct also to colour-blind eyes and at least 3:1 against the
background; those after them are `hue_step` degrees apart, the golden angle, which never comes back to one."""
COLOURS = len(PALETTE["light"])


def colour_numbers(run_ids: Sequence[str]) -> list[int]:
    """Return a colour's number for each run: its own, which its id says, or the next one where a run before it has
    that; after the palette new ones."""
    numbers: list[int] = []
    for place, run_id in enumerate(run_ids):
        own = int(run_id, 36) % COLOURS
        candidates = ((own + further) % COLOURS for further in range(COLOURS))
        numbers.append(next((number for number in candidates if number not in numbers), place))
    return numbers
