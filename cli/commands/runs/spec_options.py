"""The options of `rankzero launch`: one for each field of a spec that a person sets, and those of the launch itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from domain.catalogue import InputKind, Row
from domain.choices import RECIPES
from domain.spec import CATALOGUE


def with_options(options: Iterable[inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command further options, which it takes as keywords, beside its own."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
        names = {p.name for p in own}
        shared = [p for p in options if p.name not in names]
        parameters = sorted([*shared, *own], key=lambda p: (p.name != "context", p.default is not p.empty))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def options_of_spec() -> Iterator[inspect.Parameter]:
    """Yield an option for each field of the catalogue that a person sets."""
    for row in CATALOGUE.values():
        if row.section:
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            yield inspect.Parameter(row.name, kind, default=None, annotation=_annotation(row))


def is_list(row: Row) -> bool:
    """Whether the option may be repeated."""
    return row.kind in (InputKind.NAMES, InputKind.WORDS, InputKind.PAIRS, InputKind.SECRETS)


def _annotation(row: Row) -> Any:
    """Return the type of an option as typer takes it, with its names and its help."""
    name = row.option or row.name.replace("_", "-")
    option = typer.Option(
        f"--{name}/--no-{name}" if row.default is True else f"--{name}",
        metavar=METAVARS.get(row.name, row.metavar),
        help=f"{row.help or f'{row.label}.'}{' Repeatable.' if is_list(row) else ''}",
        show_default=_default(row) or False,
    )
    # `nodes` is a number or a range.
    value_type = list[str] if is_list(row) else str if row.name == "nodes" else row.type
    return Annotated[Optional[value_type], option]  # noqa: UP045


def _default(row: Row) -> str:
    if row.kind is InputKind.FLAG or is_list(row):
        return "on" if row.default is True else ""
    return row.unset or ("" if row.default is None else str(row.default).removesuffix(".0"))


def complete_target(incomplete: str) -> list[str]:
    """Return the recipes and files that complete the target in the shell."""
    paths = [str(path) + ("/" if path.is_dir() else "") for path in Path().glob(f"{incomplete}*")]
    return [name for name in RECIPES if name.startswith(incomplete)] + paths


METAVARS = {"stage": "SOURCE=NAME"}
"""Where the form has another order."""
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A recipe's name, a script, or a folder or git URL with --entry or --module.",
        autocompletion=complete_target,
        show_default=False,
    ),
]
Args = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS…]", help="Arguments of the script.", show_default=False),
]
Seeds = Annotated[
    str | None, typer.Option(metavar="1,2,3", help="Several seeds: a run for each, compared as one group.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit code 0 only if it succeeds.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be started.")]
