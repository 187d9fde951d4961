"""Commands that are imported when they are called: importing all of them takes longer than most of them run."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup

WITH_SIGNS = frozenset({"tag"})
"""Commands whose arguments may look like options: `rankzero tag RUN -TAG`."""
_RAISES = re.compile(r"\s+Raises [A-Z]")


class CommandsOnDemand(Mapping[str, TyperCommand | TyperGroup]):
    """Commands by name, from places such as `cli.commands.runs:show`: a module and a function or Typer app in it."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = {name_of(place): place for place in places}
        self._loaded: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._places[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def described(self) -> dict[str, TyperCommand]:
        """Return the commands with their help alone, read from the source of their modules."""
        return {name: TyperCommand(name, help=_help(place)) for name, place in self._places.items()}


def name_of(place: str) -> str:
    """Return the name of the command at a place."""
    return place.partition(":")[2].removesuffix("_app").rstrip("_").replace("_", "-")


def _load(name: str, place: str) -> TyperCommand | TyperGroup:
    module, _, attribute = place.partition(":")
    target = getattr(import_module(module), attribute)
    parent = typer.Typer(rich_markup_mode=None)
    if isinstance(target, typer.Typer):
        parent.add_typer(target, name=name)
    else:
        settings = {"ignore_unknown_options": name in WITH_SIGNS}
        parent.command(name, help=_without_errors(inspect.getdoc(target)), context_settings=settings)(target)
    command: TyperCommand | TyperGroup = typer.main.get_group(parent).commands[name]  # type: ignore[assignment]
    return command


def _help(place: str) -> str:
    module, _, attribute = place.partition(":")
    return _without_errors(_docstrings(module)[attribute.removesuffix("_app")])


def _without_errors(docstring: str | None) -> str:
    """Return the help without what is raised, which is for those who read the code."""
    return _RAISES.split(str(docstring), maxsplit=1)[0]


@cache
def _docstrings(module: str) -> dict[str, str | None]:
    """Docstrings of a module's functions by name, without importing it."""
    specification = find_spec(module)
    assert specification is not None and specification.origin is not None
    parsed = ast.parse(Path(specification.origin).read_text(encoding="utf-8"))
    return {part.name: ast.get_docstring(part) for part in parsed.body if isinstance(part, ast.FunctionDef)}
