"""`rankzero checkpoint show, diff`: the tensors of a checkpoint, and how far those of another are from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cli.commands.runs.checkpoints import choose
from cli.server.checkpoint_tasks import followed
from cli.server.client import ServerClient
from cli.server.options import Data, Json, RunId, complete_run, id_of_run, run_path, server_at
from cli.terminal import CommandFailed, print_json, print_list, printable, say
from domain.text.columns import Column, Columns, Figure
from domain.text.formats import as_list, count, number, plural, size

Name = Annotated[str | None, typer.Argument(help="Its name.", show_default="the latest complete one")]
First = Annotated[
    str,
    typer.Argument(
        metavar="A", help="RUN[:CHECKPOINT], by default its latest complete one.", autocompletion=complete_run,
        show_default=False,
    ),
]  # fmt: skip
Second = Annotated[
    str,
    typer.Argument(
        metavar="B", help="RUN[:CHECKPOINT], or :CHECKPOINT of the same run.", autocompletion=complete_run,
        show_default=False,
    ),
]  # fmt: skip
Tensors = Annotated[bool, typer.Option("--tensors", help="A line for each tensor, not for each layer.")]
MOST_NAMED = 3


def show(run: RunId, name: Name = None, data: Data = None, as_json: Json = False) -> None:
    """Show a checkpoint's tensors: shapes, dtypes, norms, and the values that are not finite."""
    server = server_at(data)
    checkpoint = choose(server.get(run_path(run, "checkpoints")), run, name)
    result = _result(server, f"/api/checkpoints/{checkpoint['id']}/show", {}, as_json)
    if as_json:
        return print_json({"checkpoint": checkpoint["name"]} | result)
    print_list(_tensor_columns(result["tensors"]), result["tensors"])
    _say_totals(result)
    return None


def diff(
    context: typer.Context, a: First, b: Second, tensors: Tensors = False, data: Data = None, as_json: Json = False
) -> None:
    """Compare two checkpoints: relative change and cosine of each layer."""
    server = server_at(data)
    first = _checkpoint(context, server, a)
    run_of_b, _, name_of_b = b.partition(":")
    second = _checkpoint(context, server, b if run_of_b else f"{a.partition(':')[0]}:{name_of_b}")
    result = _result(server, f"/api/checkpoints/{first['id']}/diff", {"other": second["id"]}, as_json)
    if as_json:
        return print_json({"checkpoints": [first["name"], second["name"]]} | result)
    rows = result["tensors"] if tensors else result["layers"]
    print_list(_change_columns("name" if tensors else "layer", rows), rows, empty="They have no tensor in common.")
    _say_unequal(result)
    return None


def _checkpoint(context: typer.Context, server: ServerClient, word: str) -> dict[str, Any]:
    """Return the checkpoint that RUN[:CHECKPOINT] means. Raises CommandFailed."""
    run, _, name = word.partition(":")
    run_id = id_of_run(context, run) if run else None
    if run_id is None:
        raise CommandFailed(f"{word!r} names no run: write RUN or RUN:CHECKPOINT.", 2)
    return choose(server.get(run_path(run_id, "checkpoints")), run_id, name or None)


def _result(server: ServerClient, path: str, body: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """Have a node read the checkpoints, and return what it reports. Raises CommandFailed."""
    task = followed(server, server.post(path, body))
    result: dict[str, Any] = task["result"]
    return result


# -- tables ------------------------------------------------------------------------------------


def _tensor_columns(tensors: Sequence[Any]) -> Columns[Any]:
    """Return the columns that fit 80 characters; `--json` has all figures."""
    columns: list[Column[Any]] = [
        Column("name"), Column("shape", lambda one: "×".join(map(str, one.shape)) or "scalar"), Column("dtype"),
        Figure("norm", lambda one: _figure(one.norm)),
    ]  # fmt: skip
    broken = Column[Any]("not finite", lambda one: _broken(one.nan, one.inf))
    return [*columns, broken] if any(one["nan"] or one["inf"] for one in tensors) else columns


def _change_columns(title: str, rows: Sequence[Any]) -> Columns[Any]:
    columns: list[Column[Any]] = [
        Column(title), Figure("change", lambda one: "from zero" if one.relative is None else number(one.relative)),
        Figure("cosine", lambda one: _figure(one.cosine, 6)), Figure("largest", lambda one: _figure(one.largest)),
        Figure("unchanged", lambda one: f"{100 * one.unchanged:.3g} %"),
        Figure("values", lambda one: number(one["values"])),
    ]  # fmt: skip
    broken = Figure[Any]("not finite", lambda one: count(one.not_finite) if one.not_finite else "")
    return [*columns, broken] if any(one["not_finite"] for one in rows) else columns


def _figure(value: float | None, digits: int = 3) -> str:
    return "" if value is None else number(value, digits)


def _broken(nan: int | None, infinite: int | None) -> str:
    parts = [f"{count(nan)} NaN"] if nan else []
    return ", ".join(parts + ([f"{count(infinite)} infinite"] if infinite else []))


def _say_totals(result: dict[str, Any]) -> None:
    totals = result["totals"]
    kinds = as_list(f"{one['dtype']} ({size(one['bytes'])})" for one in result["dtypes"])
    say(printable(f"{plural(totals['tensors'], 'tensor')}, {number(totals['values'])} values: {kinds or 'nothing'}."))
    if result["left_out"]:
        say(f"{plural(result['left_out'], 'further tensor')} left out, to bound the report's size.")
    _say_notes(result)


def _say_unequal(result: dict[str, Any]) -> None:
    """Name what is in one of them alone, or has another shape or dtype."""
    labels = {"only_a": "Only in A", "only_b": "Only in B", "different": "Of another shape or dtype"}
    for key, label in labels.items():
        names = [row["name"] for row in result[key]]
        if names:
            say(printable(f"{label}: {as_list(names, MOST_NAMED)}."))
    _say_notes(result)


def _say_notes(result: dict[str, Any]) -> None:
    for note in result["notes"]:
        say(printable(note))
