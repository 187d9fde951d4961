"""The tables of a report: its runs, their results, what differs, their findings and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from dashboard.compare.document import differences
from dashboard.compare.joined_series import results_by_shown_name
from dashboard.compare.spec_changes import settings_in_words
from dashboard.compare.spec_words import all_in_words
from dashboard.exports.elements import Child, Element, element, table
from dashboard.service.service import Service
from db.checkpoints import checkpoint_queries
from db.findings.findings import findings
from db.metrics.run_results import results
from db.runs import run_queries
from db.runs.compared_runs import compared_runs
from domain.lists import run_lists
from domain.messages import State
from domain.text.columns import Column, Columns, Entry
from domain.text.formats import (
    UNKNOWN,
    as_list,
    clock_time,
    count,
    duration,
    learning_rate,
    number,
    plural,
    signature,
)
from domain.views import RunView


def runs_table(runs: Sequence[RunView]) -> Element:
    """Return a line for each compared run."""
    head = ("Run", "Id", "State", "Started (UTC)", "Duration", "Trained on", "Step", "Tags")
    return table(
        head,
        [
            (name_of(run, place), run.id, _state(run), clock_time(run.started_at), duration(_seconds(run)),
             _size(run), count(run.step), ", ".join(run.tags))
            for place, run in enumerate(runs)
        ],
    )  # fmt: skip


MOST_ROWS = 300
SHOWN_DIGITS = 12
MOST_VALUE = 2000
"""Longest text of a cell."""


def swatch(place: int) -> Element:
    """Return a line in the colour of a run."""
    line = element("path", d="M1 6H11", class_=f"curve c{place}", stroke_width="3")
    return element("svg", line, viewBox="0 0 12 12", class_="swatch", aria_hidden="true")


def name_of(run: RunView, place: int) -> Element:
    """Return a run's name beside its colour."""
    return element("span", swatch(place), run.name)


def facts(run: RunView, with_people: bool) -> Element:
    """Return the rows of a run's header; only signed-in readers see who launched it."""
    rows = [
        ("State", _state(run)), ("Project", run.project), ("Run", run.id),
        ("Launched by", signature(run.by, run.via) if with_people else None), ("Tags", ", ".join(run.tags)),
        ("Started", f"{clock_time(run.started_at)} UTC" if run.started_at else None),
        ("Duration", duration(_seconds(run))), ("Trained on", _size(run)), ("Step", count(run.step)),
        ("Global batch", count(run.global_batch_size)), ("Learning rate", learning_rate(run.lr)),
        ("Samples/s", number(run.throughput_mean)),
    ]  # fmt: skip
    return table((), [(_heading(label), value) for label, value in rows if value not in (None, "", UNKNOWN)])


def results_table(service: Service, runs: Sequence[RunView]) -> Element | None:
    """Return the best and last value of each series that the runs log; None where they log nothing."""
    by_run = results_by_shown_name(results(service.store, [run.id for run in runs]))
    names = sorted({name for of_run in by_run.values() for name in of_run})[:MOST_ROWS]
    rows: list[list[Child]] = []
    for name in names:
        of_name = [by_run[run.id].get(name) for run in runs]
        if any(result and result.best is not None for result in of_name):
            rows.append([f"{name} (best)", *(number(result.best, 4) if result else UNKNOWN for result in of_name)])
        rows.append([f"{name} (last)", *(number(result.last, 4) if result else UNKNOWN for result in of_name)])
    titles = [name_of(run, place) for place, run in enumerate(runs)] if len(runs) > 1 else ["Value"]
    return table(["Series", *titles], rows) if rows else None


def differences_table(service: Service, runs: Sequence[RunView]) -> Element:
    """Return only what differs between the runs."""
    compared = compared_runs(service.store, [run.id for run in runs])
    rows = [
        [difference.label, *(text[:MOST_VALUE] for text in all_in_words(difference.values))]
        for difference in differences(list(compared.values()))
    ]
    if not rows:
        return element("p", "The settings, the environment and the nodes are the same.")
    return table(["", *(name_of(run, place) for place, run in enumerate(runs))], rows[:MOST_ROWS])


def settings_table(run: RunView) -> Element:
    """Return the settings that a run was launched with, but the defaults; secrets are masked."""
    values = run.spec.model_dump(mode="json", exclude_defaults=True)
    if run.spec.snapshot:  # the full digest allows launching the code, and so reading it
        values["snapshot"] = run.spec.snapshot[:SHOWN_DIGITS]
    rows = [(label, text[:MOST_VALUE]) for label, text in settings_in_words(values)]
    return table(("Setting", "Value"), rows)


def checkpoints_table(service: Service, run: RunView) -> Element | None:
    """Return a run's complete checkpoints with their digests; None without any."""
    complete = [one for one in checkpoint_queries.checkpoints(service.store, run.id) if one.complete][:MOST_ROWS]
    columns = [column for column in run_lists.checkpoints(clock_time) if column.title in ("name", "step", "size")]
    return _listed([*columns, Column("SHA-256", lambda saved: saved.sha256)], complete) if complete else None


def history_table(service: Service, run: RunView, with_people: bool) -> Element:
    """Return the newest lines of a run's history, and who did what for those with an account."""
    return _listed(run_lists.history(UTC, with_people), run_queries.history(service.store, run.id)[-MOST_ROWS:])


def _listed(columns: Columns[Entry], entries: Sequence[Entry]) -> Element:
    rows = [[str(column.cell(entry))[:MOST_VALUE] for column in columns] for entry in entries]
    return table([column.heading for column in columns], rows)


def findings_list(service: Service, run: RunView) -> Iterator[Element]:
    """Yield what was wrong with a run, beyond the cause of its failure."""
    cause = (run.message or "") if run.state == State.FAILED else ""
    for finding in findings(service.store, run.id)[:MOST_ROWS]:
        ended = "" if finding.gone_at is None else " (it no longer applies)"
        text = f"{finding.beyond(cause).evidence} {finding.meaning}{ended}".strip()
        yield element("p", element("b", f"{finding.kind}: "), text)


def _heading(label: str) -> Element:
    return element("span", label, class_="muted")


def _state(run: RunView) -> str:
    return str(run.state) if run.reason is None else f"{run.state}: {run.reason}"


def _seconds(run: RunView) -> float | None:
    return None if run.started_at is None or run.ended_at is None else run.ended_at - run.started_at


def _size(run: RunView) -> str:
    return as_list([plural(run.nodes, "node"), plural(run.world_size, "rank")])
