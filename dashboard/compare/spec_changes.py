"""Compare specs field by field, with the figures that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboard.compare.spec_words import all_in_words
from domain.launch.plan import filled_args
from domain.masking.masking import MASK, masked_args, masked_text, masked_variable
from domain.spec import FIELDS, RunSpec, label_of
from domain.text.tables import is_number


def spec_differences(specs: Sequence[RunSpec]) -> list[Difference]:
    """Return the fields in which any of the specs differ, labelled as in the form, then the figures that follow."""
    return [*_fields(specs), *_arguments([filled_args(spec) for spec in specs]), *_figures(specs)]


INTERPRETER = {
    "path": "Interpreter",
    "python": "Python version",
    "torch": "torch",
    "cuda": "CUDA",
    "rocm": "ROCm",
    "nccl": "NCCL",
}


@dataclass(frozen=True)
class SpecChange:
    """A difference between two specs; None stands for the script's own value or a missing entry."""

    field: str
    label: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Difference:
    """A field in which runs differ, with the value of each run in their order; None as in `SpecChange`."""

    field: str
    label: str
    values: tuple[Any, ...]


def interpreter_differences(interpreters: Sequence[Mapping[str, Any] | None]) -> list[Difference]:
    """Return the differences between the known interpreters; an unknown one has the value None."""
    reported = [interpreter for interpreter in interpreters if interpreter]
    versions = [
        Difference(f"interpreter.{name}", label, tuple((i or {}).get(name) for i in interpreters))
        for name, label in INTERPRETER.items()
        if _differ([interpreter.get(name) for interpreter in reported])
    ]
    return [*versions, *_package_differences([(i or {}).get("packages") or {} for i in interpreters])]


def _package_differences(packages: Sequence[Mapping[str, str]]) -> Iterator[Difference]:
    """Yield the packages whose versions differ; interpreters whose packages were not recorded do not count."""
    recorded = [versions for versions in packages if versions]
    for name in sorted({name for versions in recorded for name in versions} - {"torch"}):
        if _differ([versions.get(name) for versions in recorded]):
            values = tuple(versions.get(name) for versions in packages)
            yield Difference(f"package.{name}", f"Package {name}", values)


def masked(difference: Difference) -> Difference:
    """Return the difference with secrets masked; different values that are masked alike are numbered."""
    shown = [_masked(difference.field, value) for value in difference.values]
    for text in {repr(value) for value in shown if value is not None}:
        places = [place for place, value in enumerate(shown) if repr(value) == text]
        distinct = list(dict.fromkeys(repr(difference.values[place]) for place in places))
        for place in places if len(distinct) > 1 else ():
            shown[place] = f"{MASK} ({_ordinal(distinct.index(repr(difference.values[place])))})"
    return replace(difference, values=tuple(shown))


def _ordinal(number: int) -> str:
    return ("one value", "another")[number] if number < 2 else f"value {number + 1}"


def settings_in_words(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the label and the value of each of a spec's settings, as people write them."""
    return [(label_of(name), _in_words(value) + FIELDS[name].unit) for name, value in settings.items()]


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={entry}" for name, entry in value.items())
    return all_in_words([value])[0]


def _masked(field: str, value: Any) -> Any:
    kind, _, name = field.partition(".")
    if isinstance(value, str):
        return masked_variable(name, value) if kind == "env" else masked_text(value)
    if not isinstance(value, list):
        return value
    arguments = [str(argument) for argument in value]
    return masked_args([name, *arguments])[1:] if name and kind == "args" else masked_args(arguments)


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values[1:])


def _row(field: str, label: str, values: Iterable[Any]) -> Iterator[Difference]:
    """Yield the field where its values differ."""
    shown = tuple(values)
    if _differ(shown):
        yield Difference(field, label, shown)


def _fields(specs: Sequence[RunSpec]) -> Iterator[Difference]:
    documents = [spec.model_dump(mode="json") for spec in specs]
    for name, row in FIELDS.items():
        values = [document[name] for document in documents]
        if row.entry_label:
            for key in dict.fromkeys(key for value in values for key in value):
                yield from _row(f"{name}.{key}", f"{row.entry_label} {key}", (value.get(key) for value in values))
        elif row.is_compared:
            yield from _row(name, row.label, values)


def _arguments(arguments: Sequence[Sequence[str]]) -> Iterator[Difference]:
    """Yield the options that differ; all arguments where an option repeats or only the order differs."""
    options = [parsed for parsed in map(_options, arguments) if parsed is not None]
    if len(options) < len(arguments) or not _differ(options):
        yield from _row("args", label_of("args"), map(list, arguments))
        return
    for name in dict.fromkeys(name for by_name in options for name in by_name):
        label = f"Argument {name}" if name else "Arguments"
        yield from _row(f"args.{name}" if name else "args", label, (by_name.get(name) for by_name in options))


def _options(args: Sequence[str]) -> dict[str, list[str] | bool] | None:
    """Return the values after each option, or True, by its name; leading values have the name ''."""
    by_name: dict[str, list[str]] = {}
    name = ""
    for argument in args:
        if not argument.startswith("-") or is_number(argument):
            by_name.setdefault(name, []).append(argument)
            continue
        name, equals, value = argument.partition("=")
        if name in by_name:
            return None
        by_name[name] = [value] if equals else []
    return {name: values or True for name, values in by_name.items()}


def _figures(specs: Sequence[RunSpec]) -> Iterator[Difference]:
    """Yield the derived figures that differ; the learning rate only where a scaling rule applies."""
    yield from _row("world_size", "World size", (spec.world_size for spec in specs))
    yield from _row("global_batch_size", "Global batch", (spec.global_batch_size for spec in specs))
    if any(spec.lr_scaling != "none" for spec in specs):
        yield from _row("scaled_lr", "Learning rate after scaling", (spec.scaled_lr for spec in specs))
