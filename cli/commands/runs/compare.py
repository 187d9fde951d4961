"""`rankzero compare, diff`: what differs between runs, and what became of their series."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from cli.server.options import Data, Json, RunId, RunIds, complete_run, id_of_run, run_path, server_at
from cli.terminal import CommandFailed, print_json, print_table, printable, say, warn
from dashboard.compare.spec_words import all_in_words, in_words
from domain.performance.phases import in_words as phase_in_words
from domain.text import formats
from domain.text.tables import as_csv, as_latex, as_markdown


def id_of_baseline(context: typer.Context, run: str | None) -> str | None:
    """Return the id of the run that is compared with, or `none`. Raises CommandFailed."""
    return run if run == "none" else id_of_run(context, run)


Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="RUN",
        help="Show each result's change to this run's in per cent; `none` for no baseline.",
        show_default="that of the runs' project",
        autocompletion=complete_run,
        callback=id_of_baseline,
    ),
]
Group = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD",
        help="Show the mean and the spread of runs with the same value of this field, such as lr; repeatable.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="FIELD", help="With one --group for the rows: the columns' field."),
]
Result = Annotated[
    str | None,
    typer.Option(metavar="SERIES", help="The series in the cells of rows and columns.", show_default=False),
]


class TableFormat(StrEnum):
    """A language in which a table is written for another program."""

    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"

    def written(self, lines: list[list[str]]) -> str:
        """Return the table, whose head is the first line, as text of this language."""
        writers = {self.CSV: as_csv, self.MARKDOWN: as_markdown, self.LATEX: as_latex}
        return writers[self](lines)


Format = Annotated[TableFormat | None, typer.Option("--format", help="Print one table for another program.")]


def compare(
    runs: RunIds,
    baseline: Baseline = None,
    group: Group = None,
    columns: Columns = None,
    result: Result = None,
    table: Format = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show only what differs between runs, and the last and best value of each series.

    The best value is the lowest of series with loss, error or perplexity in their name, and the highest of
    accuracy-like ones."""
    ids = list(dict.fromkeys([*runs, *([baseline] if baseline not in (None, "none") else [])]))
    fields = _fields(group, columns)
    comparison = server_at(data).get("/api/compare", runs=",".join(ids), baseline=baseline, group=fields)
    if fields:
        _check_fields(fields, comparison["differences"])
    if as_json:
        print_json(comparison)
    elif columns:
        lines = _crossed(comparison, fields[0], columns, result, exact=table == TableFormat.CSV)
        print(table.written(lines), end="") if table else print_table(lines[0], lines[1:])
    elif table:
        print(table.written(_lines(comparison, ids, table)), end="")
    elif group:
        head, *rows = _for_people(_group_lines(comparison))
        print_table(head, rows)
    else:
        _print_tables(comparison, ids)


def _for_people(lines: list[list[str]]) -> list[list[str]]:
    """Return a table whose longer side is upright: a terminal is narrow."""
    return [list(line) for line in zip(*lines, strict=True)] if len(lines) < len(lines[0]) else lines


def _fields(group: Sequence[str] | None, columns: str | None) -> list[str]:
    """Return the fields to group by, the columns' last. Raises CommandFailed for columns without rows."""
    if columns and len(group or ()) != 1:
        raise CommandFailed("--columns needs one field for the rows: add --group FIELD.", 2)
    return [*(group or ()), *([columns] if columns else [])]


def _check_fields(fields: Sequence[str], differences: Sequence[dict[str, Any]]) -> None:
    differing = [row["field"] for row in differences]
    if unknown := next((field for field in fields if field not in differing), None):
        advice = f"Group by one of: {', '.join(differing)}." if differing else "They differ in no field."
        raise CommandFailed(f"The runs do not differ in {unknown!r}. {advice}")


def _lines(comparison: dict[str, Any], ids: list[str], table: TableFormat) -> list[list[str]]:
    """The complete comparison as one table: its head, then its rows."""
    if "groups" in comparison:
        return _group_lines(comparison, exact=table == TableFormat.CSV)
    exact = table == TableFormat.CSV
    results = [row for series in comparison["series"] for row in _results(series, ids, exact)]
    titles = ["", *(f"{comparison['names'][run_id]} ({run_id})" for run_id in ids)]
    phases = [_phase(row, ids, exact) for row in comparison["phases"]]
    return [titles, *(_difference(row, ids) for row in comparison["differences"]), *results, *phases]


def _print_tables(comparison: dict[str, Any], ids: list[str]) -> None:
    titles = [f"{comparison['names'][run_id]} ({run_id})" for run_id in ids]
    if comparison["differences"]:
        print_table(("", *titles), [_difference(row, ids) for row in comparison["differences"]])
    else:
        same = "The settings, the environment and the nodes are the same."
        say(same if len(ids) > 1 else "There is one run here. Name another to see what differs.")
    if comparison["series"]:
        print_table(("", *titles), [row for series in comparison["series"] for row in _results(series, ids)])
    if comparison["phases"]:
        print_table(("where a step goes", *titles), [_phase(row, ids) for row in comparison["phases"]])


def _phase(row: dict[str, Any], ids: list[str], exact: bool = False) -> list[str]:
    """The mean seconds of a phase in each run."""
    figures = [row["runs"].get(run_id) for run_id in ids]
    if exact:
        return [f"{row['title']} (s)", *(repr(figure["seconds"]) if figure else "" for figure in figures)]
    return [row["title"], *(phase_in_words(**figure) if figure else formats.UNKNOWN for figure in figures)]


def _difference(row: dict[str, Any], ids: list[str]) -> list[str]:
    return [row["label"], *all_in_words([row["values"][run_id] for run_id in ids])]


def _results(series: dict[str, Any], ids: list[str], exact: bool = False) -> list[list[str]]:
    """Return a row for the best value, where the name says which that is, and one for the last."""
    figures = ("best", "last") if series["goal"] else ("last",)
    return [
        [_title(series, name), *(_figure(series["runs"].get(run_id), name, exact) for run_id in ids)]
        for name in figures
    ]


def _title(series: dict[str, Any], figure: str) -> str:
    others = sorted(set(series.get("own_names", {}).values()))
    joined = f", includes {', '.join(others)}" if others else ""
    if figure == "best":
        return f"{series['name']} ({'lowest' if series['goal'] == 'min' else 'highest'}){joined}"
    return f"{series['name']} (last){joined}" if series["goal"] else f"{series['name']}{joined}"


def _figure(result: dict[str, Any] | None, name: str, exact: bool) -> str:
    """Return the value with its change to the baseline, or for another program the value with all digits."""
    if result is None or result[name] is None:
        return "" if exact else formats.UNKNOWN
    if exact:
        return repr(result[name])
    change = result.get(f"{name}_change_percent")
    shown = formats.number(float(result[name]), 4)
    return shown if change is None else f"{shown} ({formats.change(change)})"


def _group_lines(comparison: dict[str, Any], exact: bool = False) -> list[list[str]]:
    """The head and a line for each group: its values, its runs, then mean and spread of each result."""
    labels = {row["field"]: row["label"] for row in comparison["differences"]}
    fields = list(comparison["groups"][0]["values"])
    columns = [all_in_words([group["values"][name] for group in comparison["groups"]]) for name in fields]
    columns.append([str(len(group["runs"])) for group in comparison["groups"]])
    heads = [*(labels[name] for name in fields), "Runs"]
    for title, summaries in _summaries(comparison["series"]):
        heads += [f"{title} mean", f"{title} spread"] if exact else [title]
        columns += _exact(summaries) if exact else [[_mean_and_spread(summary) for summary in summaries]]
    return [heads, *map(list, zip(*columns, strict=True))]


def _crossed(comparison: dict[str, Any], rows: str, columns: str, result: str | None, exact: bool) -> list[list[str]]:
    """Return the head and a line for each value of the rows' field: the result's mean and spread in each column.

    Raises CommandFailed for a series that none of the runs logged."""
    by_name = {row["name"]: row for row in comparison["series"]}
    name = result or next((row["name"] for row in comparison["series"] if row["goal"]), None)
    if name not in by_name:
        raise CommandFailed(f"--result must be a series of the runs: {', '.join(by_name)}; got {name!r}.", 2)
    series, figure = by_name[name], "best" if by_name[name]["goal"] else "last"
    words = [all_in_words([group["values"][field] for group in comparison["groups"]]) for field in (rows, columns)]
    summaries = [group[figure] for group in series["groups"]]
    cells = dict(zip(zip(*words, strict=True), summaries, strict=True))
    heads = list(dict.fromkeys(words[1]))
    titles = [f"{columns} {head}" for head in heads]
    if exact:
        titles = [f"{title} {figure}" for title in titles for figure in ("mean", "spread")]
    lines = [
        [row, *(text for head in heads for text in _cell(cells.get((row, head)), exact))]
        for row in dict.fromkeys(words[0])
    ]
    return [[_title(series, figure), *titles], *lines]


def _cell(summary: dict[str, Any] | None, exact: bool) -> list[str]:
    """Return the mean and the spread as one text, or each with all digits."""
    return [column[0] for column in _exact([summary])] if exact else [_mean_and_spread(summary)]


def _summaries(series: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    for row in series:
        figures = ("best", "last") if row["goal"] else ("last",)
        for figure in figures:
            yield _title(row, figure), [group[figure] for group in row["groups"]]


def _exact(summaries: Sequence[dict[str, Any] | None]) -> list[list[str]]:
    """The column of means and that of spreads, with all digits; empty where one is unknown."""
    return [
        ["" if summary is None or summary[name] is None else repr(summary[name]) for summary in summaries]
        for name in ("mean", "spread")
    ]


def _mean_and_spread(summary: dict[str, Any] | None) -> str:
    if summary is None:
        return formats.UNKNOWN
    mean, spread, change = summary["mean"], summary["spread"], summary.get("change_percent")
    around = "" if spread is None else f" ± {formats.number(spread, 2)}"
    return f"{formats.number(mean, 4)}{around}{'' if change is None else f' ({formats.change(change)})'}"


# `rankzero diff`: what differs between two runs, as a text that people read and git applies.

Other = Annotated[
    str,
    typer.Argument(
        metavar="OTHER", help="The run it is compared with.", autocompletion=complete_run, show_default=False,
        callback=id_of_run,
    ),
]  # fmt: skip
COLOURS = {"+": "32", "-": "31", "@": "36", "#": "1", "d": "1"}
"""Colour of a line at a terminal, by its first character."""


def diff(run: RunId, other: Other, data: Data = None, as_json: Json = False) -> None:
    """Show what differs from RUN to OTHER: settings as comments, code as a patch."""
    differences = server_at(data).get(run_path(run, "diff"), **{"with": other})
    if as_json:
        print_json(differences)
        return
    code = differences["code"]
    print_lines(setting(change) for change in differences["spec"])
    print_lines(code["diff"].split("\n")[:-1])
    if code["note"]:
        warn(code["note"])
    if code["truncated"]:
        warn("The difference is too large to show all lines, but every file that differs is named.")
    if not differences["spec"] and differences["same_code"]:
        warn("No difference.")


def setting(change: dict[str, Any]) -> str:
    """Return a setting as a comment line, which patch ignores."""
    old, new = in_words(change["old"], change["new"])
    return f"# {printable(change['label'])}: {printable(old)} -> {printable(new)}"


def print_lines(lines: Iterable[str]) -> None:
    """Print lines unchanged to a program, and coloured and without control characters to a terminal."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode(errors="replace"))
        sys.stdout.buffer.flush()
        return
    for line in lines:
        shown = "\t".join(map(printable, line.split("\t")))
        colour = None if os.environ.get("NO_COLOR") else COLOURS.get(line[:1])
        print(f"\x1b[{colour}m{shown}\x1b[0m" if colour else shown)
