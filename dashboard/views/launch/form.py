"""Read the form's fields as a spec, and write a spec into the fields."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from dashboard.errors import describe
from dashboard.views.launch.fields import EMPTY_CODE, MISSING, code_values, spec_fields, stripped
from dashboard.views.launch.fields import RECIPE as RECIPE
from dashboard.views.launch.fields import SCRIPT as SCRIPT
from domain.catalogue import InputKind, Row, Section
from domain.spec import CATALOGUE, FIELDS, SLURM_FIELDS, RunSpec, label_of


@dataclass(frozen=True)
class FormReading:
    """The parsed form: a spec, or the error of each wrong field."""

    spec: RunSpec | None
    draft: RunSpec | None
    """The spec without its wrong fields, for the figures beside the form."""
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def names_no_code(self) -> bool:
        """Whether the field of the code is still empty: nothing wrong, but nothing to launch either."""
        return self.draft is not None and self.draft.target == STAND_IN


STAND_IN = "<script>"
"""Target of a plan whose script is not named yet, so that the figures are still shown."""
ASKED = [row for row in FIELDS.values() if row.section not in (None, Section.CODE)]
"""Fields of the spec beside its code."""


def _text(row: Row, value: Any) -> Any:
    """Return a value of the spec as its input has it."""
    match row.kind:
        case InputKind.FLAG:
            return value
        case InputKind.SECRETS:
            return list(value)
        case InputKind.PAIRS:
            return "\n".join(f"{key}={text}" for key, text in value.items())
        case InputKind.WORDS:
            return shlex.join(value)
        case InputKind.NAMES:
            return ", ".join(value)
        case InputKind.CHOICE:
            return value or row.unset
    is_unset = value is None or (row.example and value == row.default)
    return "" if is_unset else f"{value:g}" if isinstance(value, float) and value >= 1 else str(value)


EMPTY: dict[str, Any] = EMPTY_CODE | {row.name: _text(row, row.default) for row in (*ASKED, *SLURM_FIELDS.values())}
"""The values of an empty form."""


def read(values: Mapping[str, Any], args: Sequence[str] = (), launcher: str | None = None) -> FormReading:
    """Read the fields; never fails, whatever they contain.

    `args`: arguments from the script's own fields, before the free ones; `launcher`: meaning of "automatic"."""
    refusals: dict[str, str] = {}
    fields = _read_fields(values, refusals)
    fields["args"] = [*args, *fields.get("args", [])]
    if launcher and "launcher" not in fields and fields.get("strategy") not in ("single", "dp"):
        fields["launcher"] = launcher
    spec = _validated(fields, refusals)
    if spec is not None and not refusals:
        return FormReading(spec, spec)
    return FormReading(None, _draft(fields, refusals), refusals)


def values_of(spec: RunSpec, recipes: Container[str]) -> dict[str, Any]:
    """Return the form's values for a spec."""
    fields = spec.model_dump() | spec.as_variables
    values = {row.name: _text(row, fields[row.name]) for row in ASKED}
    slurm = {row.name: _text(row, getattr(spec.slurm, option)) for option, row in SLURM_FIELDS.items()}
    nodes = {"nodes": spec.node_range, "min_nodes": "" if spec.elastic else values["min_nodes"]}
    return EMPTY | values | slurm | nodes | code_values(spec, recipes)


def _read_fields(values: Mapping[str, Any], refusals: dict[str, str]) -> dict[str, Any]:
    fields = spec_fields(values)
    if "target" not in fields:
        refusals["target"] = f"{label_of('target')}: {MISSING[values.get('source') or RECIPE]}"
        fields["target"] = STAND_IN
    for row in ASKED:
        _read_field(fields, row, values, refusals)
    if values.get("pool") == "slurm":
        _read_slurm(fields, values, refusals)
    return fields


def _read_slurm(fields: dict[str, Any], values: Mapping[str, Any], refusals: dict[str, str]) -> None:
    read_values: dict[str, Any] = {}
    for row in SLURM_FIELDS.values():
        _read_field(read_values, row, values, refusals)
    fields["slurm"] = {name: read_values[row.name] for name, row in SLURM_FIELDS.items() if row.name in read_values}


def _read_field(fields: dict[str, Any], row: Row, values: Mapping[str, Any], refusals: dict[str, str]) -> None:
    """Read one field as its kind is typed; an empty one is left out."""
    value = values.get(row.name)
    if row.kind is InputKind.FLAG:
        fields[row.name] = row.default if value is None else bool(value)
    elif row.kind in READERS:
        try:
            fields[row.name] = READERS[row.kind](value or "")
        except ValueError as error:
            refusals[row.name] = f"{row.label}: {str(error)[:1].lower()}{str(error)[1:].rstrip('.')}."
    elif (text := stripped(values, row.name)) and not (row.kind is InputKind.CHOICE and text == row.unset):
        fields[row.name] = text


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for line in filter(str.strip, text.splitlines()):
        key, equals, value = line.strip().partition("=")
        if not equals:
            raise ValueError(f"each line must be NAME=VALUE, but one is {line.strip()[:40]!r}")
        pairs[key] = value
    return pairs


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


READERS: dict[InputKind, Callable[[Any], Any]] = {
    InputKind.PAIRS: _pairs, InputKind.NAMES: _names, InputKind.WORDS: shlex.split, InputKind.SECRETS: list,
}  # fmt: skip


def _validated(fields: Mapping[str, Any], refusals: dict[str, str]) -> RunSpec | None:
    try:
        return RunSpec.model_validate(fields)
    except ValidationError as error:
        for problem in error.errors():
            _refuse(problem, refusals)
        return None


def _refuse(error: Any, refusals: dict[str, str]) -> None:
    name, sentence = describe([error])
    if name == "slurm":
        name = SLURM_FIELDS[str(error["loc"][1])].name
        sentence = sentence.partition(" ")[2] if sentence.startswith("slurm.") else sentence
    if name is None:
        # The message of a rule between fields begins with the field to change.
        name = next((name_in_text for name_in_text in sentence.split() if name_in_text in CATALOGUE), "target")
    sentence = sentence.removeprefix(f"{name} ")
    refusals.setdefault(name, f"{label_of(name)} {sentence}" if sentence[0].islower() else sentence)


def _draft(fields: Mapping[str, Any], refusals: Mapping[str, str]) -> RunSpec | None:
    valid = {name: value for name, value in fields.items() if name not in refusals or name == "target"}
    for _ in range(3):  # fixing one error can reveal another
        further: dict[str, str] = {}
        if (spec := _validated(valid, further)) is not None:
            return spec
        valid = {name: value for name, value in valid.items() if name not in further}
        if further.keys() & {row.name for row in SLURM_FIELDS.values()}:
            valid.pop("slurm", None)
    return None
