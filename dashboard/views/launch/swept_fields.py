"""Fields of the form in which several values or a range are typed: parameters of a sweep."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from dashboard.errors import describe
from domain.catalogue import InputKind, Section
from domain.spec import CATALOGUE, FIELDS, RunSpec, label_of
from domain.sweeps import SweptParameter, holds_several, parameters_of


@dataclass(frozen=True)
class SweptFields:
    """The parameters of a sweep as the form's fields have them."""

    values: dict[str, Any]
    """The form's values without them."""
    parameters: dict[str, SweptParameter] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    """By field, why its values make no sense."""

    def with_those(self, other: SweptFields) -> SweptFields:
        """Return these together with the parameters and errors of other fields."""
        return SweptFields(self.values, self.parameters | other.parameters, self.refusals | other.refusals)


NUMBERS = tuple(
    row.name
    for row in FIELDS.values()
    if row.kind is InputKind.NUMBER and row.section in (Section.SCALE, Section.TRAINING)
)
"""Fields whose text can only be one number, so that a list or range is a sweep."""
LINES = "sweep_parameters"
"""The field of the parameters that have no other one, one a line."""
BRACES = re.compile(r"\{[^{}'\":]*(?:,|\.\.)[^{}'\"]*\}")
"""Several values in the arguments, as a shell writes them: --width {64,128}."""
_SEVERAL = re.compile(rf"(?:(?P<option>[^{{}}=]+)=)?\{{(?P<values>{BRACES.pattern[2:-2]})\}}")
_OPTION = re.compile(r"[-+]*[A-Za-z][\w.-]*")
_LOG = re.compile(r"\s+log(?=\s*\})")


def take_out(values: Mapping[str, Any], lines: str = "") -> SweptFields:
    """Separate the fields with several values from those with one; `lines` are further parameters."""
    swept = SweptFields(dict(values))
    for name in NUMBERS:
        text = str(values.get(name) or "")
        if holds_several(text):
            swept.values[name] = ""
            add(swept, name, f"{name}={text}")
    _take_out_of_arguments(swept, str(values.get("args") or ""))
    for line in filter(str.strip, lines.splitlines()):
        add(swept, LINES, line)
    return swept


def add(swept: SweptFields, shown_at: str, text: str, label: str | None = None) -> None:
    """Add a parameter as `--param` takes it, or why it makes no sense, at a field."""
    label = label or (label_of(shown_at) if shown_at in CATALOGUE else "Other parameters")
    try:
        ((name, parameter),) = parameters_of([text]).items()
    except ValidationError as error:
        rule = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        swept.refusals[shown_at] = f"{label} {rule}."
        return
    except ValueError as error:
        swept.refusals[shown_at] = f"{label}: {error}."
        return
    if name in swept.parameters:
        swept.refusals[shown_at] = f"{name} has several values in two places: leave it out in one of them."
    elif refusal := refusal_of(name, parameter):
        swept.refusals[shown_at] = refusal
    swept.parameters.setdefault(name, parameter)


def refusal_of(name: str, parameter: SweptParameter) -> str | None:
    """Return why a field of the spec cannot have one of these values; None where it can, or there is no such field."""
    if name not in RunSpec.model_fields:
        return None
    for value in parameter.tried:
        try:
            RunSpec.model_validate({"target": "-", name: value})
        except ValidationError as error:
            sentence = describe(error.errors())[1].removeprefix(f"{name} ")
            return f"{label_of(name)} {sentence}"
    return None


def _take_out_of_arguments(swept: SweptFields, text: str) -> None:
    """Replace `--width {64,128}` in the arguments by `--width {width}`, with the parameter width."""
    try:
        words = shlex.split(BRACES.sub(lambda braces: _LOG.sub(":log", braces[0]).replace(" ", ""), text))
    except ValueError:  # said by the field itself
        return
    for at, (before, argument) in enumerate(zip(["", *words], [*words], strict=False)):
        several = _SEVERAL.fullmatch(argument)
        if several is None:
            continue
        option = several["option"] or before
        if not _OPTION.fullmatch(option):
            swept.refusals["args"] = f"{argument} needs an option before it, for example --width {argument}."
            return
        name = option.lstrip("-+")
        words[at] = f"{option}={{{name}}}" if several["option"] else f"{{{name}}}"
        swept.values["args"] = shlex.join(words)
        add(swept, "args", f"{name}={several['values']}")
