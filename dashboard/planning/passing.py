"""Pass the values of a spec to the script's own options, and say why a value does not arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from dashboard.script_reader import command
from dashboard.script_reader.options import Option, written
from dashboard.script_reader.proposals import LABELS, PRECISIONS, option_for
from dashboard.script_reader.reading import Script
from dashboard.script_reader.source import UnreadableScript
from domain.choices import RECIPES
from domain.spec import PASSED, RunSpec
from domain.text.formats import number


def passed(spec: RunSpec, script: Script) -> dict[str, Any]:
    """Return the changes to a spec that make its values arrive, and leave only those that the script trains with.

    A value that no option takes stays a variable of the environment; where the arguments set it, theirs counts."""
    changes, added = dict[str, Any](), list[Route]()
    variables: dict[str, str] = {name: text for name, text in spec.as_variables.items() if _is_default(spec, name)}
    for route in routes(spec, script):
        if route.arguments:
            added.append(route)
        elif route.field in PASSED:
            changes |= _replaced(route)
            variables |= {route.field: _text(spec, route.field)} if route.in_arguments is None else {}
    return changes | {"args": _with(spec.args, added, script), "as_variables": variables}


OFF = ("false", "0", "no", "off", "")
"""Texts that turn a switch off that takes one."""


def not_passed(spec: RunSpec, script: Script | UnreadableScript) -> list[str]:
    """Return a sentence for each value of a spec that does not arrive at the script, or of which that is unknown."""
    if isinstance(script, Script):
        return [route.problem for route in routes(spec, script) if route.problem]
    if not (spec.workdir or spec.snapshot):  # it is read once its code is here
        return []
    fields = [field for field in (*PASSED, "resume") if not (_is_default(spec, field) or spec.hands_over(field))]
    return [f"{script} {_only_variable(field, getattr(spec, field))}" for field in fields]


def passes(field: str, spec: RunSpec, script: Script) -> bool:
    """Whether a value for this field arrives at the script, or would if the spec had one."""
    if spec.target in RECIPES or spec.hands_over(field) or field in script.variables:
        return True
    return bool(_route(field, f"{{{field}}}", spec, script).arguments)


@dataclass(frozen=True)
class Route:
    """How one value of a spec arrives at the script: by these arguments, or why not."""

    field: str
    arguments: tuple[str, ...] = ()
    """The arguments to add; empty where the value does not arrive."""
    option: Option | None = None
    problem: str = ""
    in_arguments: str | None = None
    """The value that the spec's own arguments give instead."""


def routes(spec: RunSpec, script: Script) -> Iterator[Route]:
    """Yield the way of each value that is set in the spec and not handed over already."""
    if spec.target in RECIPES:
        return
    for field in (*PASSED, "resume"):
        is_passed = spec.hands_over(field) or field in script.variables
        if not is_passed and not _is_default(spec, field):
            yield _route(field, getattr(spec, field), spec, script)


def _route(field: str, value: object, spec: RunSpec, script: Script) -> Route:
    options = [option for option in script.options if option.command in (None, *spec.args)]
    if field == "precision":
        return _precision_route(str(value), spec, script, options)
    option, reason = option_for(field, options), _for_all_ranks(field, script)
    if option is not None and (text := command.given(option, script.options, spec.args)) is not None:
        problem = "" if _valid(field, text) == value else _set_in_arguments(option, field, value, text)
        return Route(field, option=option, in_arguments=text, problem=problem)
    if reason:
        return Route(field, problem=f"{reason} So {_shown(field, value)} is not passed on.")
    if option is None or option.kind == "positional" or _is_file_of_settings(spec, script):
        return Route(field, problem=_no_option(field, value, script, option))
    return Route(field, tuple(written(option, f"{{{field}}}")), option)


def _is_file_of_settings(spec: RunSpec, script: Script) -> bool:
    """Whether the one argument is a file, which HfArgumentParser's scripts read instead of options."""
    is_file = len(spec.args) == 1 and spec.args[0].endswith((".json", ".yaml", ".yml"))
    return is_file and "its dataclasses" in script.parsers


def _precision_route(precision: str, spec: RunSpec, script: Script, options: Sequence[Option]) -> Route:
    by_name = {option.name: option for option in options}
    proposals = [p for p in script.proposals if p.only_when and p.option in by_name]
    for proposal in proposals:
        option = by_name[proposal.option]
        if (text := command.given(option, script.options, spec.args)) is not None:
            is_on = option.kind == "switch" and text != option.off and text.lower() not in OFF
            spelled = proposal.only_when if is_on else _spelled(text)
            problem = "" if spelled == precision else _set_in_arguments(option, "precision", precision, text)
            return Route("precision", option=option, in_arguments=spelled, problem=problem)
    chosen = next((p for p in proposals if p.only_when == precision), None)
    if chosen is None:
        return Route("precision", problem=_no_option("precision", precision, script, None))
    return Route("precision", (chosen.argument,), by_name[chosen.option])


def _spelled(text: str) -> str:
    """Return the precision that a script spells so."""
    return next((precision for precision, spellings in PRECISIONS.items() if text in spellings), "fp32")


def _with(args: Sequence[str], added: Sequence[Route], script: Script) -> list[str]:
    """Return the arguments with those of the routes in the order of the script's options, as the form has them.

    They go to the front, where nothing swallows them; those of a subcommand, as all of LightningCLI are, after it."""
    outer, inner, is_lightning = list[str](), list[str](), script.option("subcommand") is not None
    for option in script.options:
        for route in added:
            if route.option == option:
                (inner if option.command or is_lightning else outer).extend(route.arguments)
    return [*outer, *args, *inner]


def _replaced(route: Route) -> dict[str, Any]:
    """Return the changes to a spec whose value does not arrive; a rate of the arguments is not scaled."""
    value = _default(route.field) if route.in_arguments is None else _valid(route.field, route.in_arguments)
    return {route.field: value} | ({"lr_scaling": "none"} if route.field == "lr" else {})


def _for_all_ranks(field: str, script: Script) -> str:
    """Return the sentence that says that the option's number is for all ranks together; empty where it is not."""
    if field not in ("batch_size", "accumulate"):
        return ""
    return next((p.reason for p in script.proposals if p.field == field and not p.is_ticked), "")


def _set_in_arguments(option: Option, field: str, value: object, text: str) -> str:
    return f"The arguments already set {option.flag} to {text[:40]}: {_shown(field, value)} is not used."


def _no_option(field: str, value: object, script: Script, option: Option | None) -> str:
    """Say that a value reaches the script by no option, and how it could."""
    advice = _advice(field)
    if option is not None and option.kind != "positional":
        reason = f"The arguments are a file of settings, which {script.name} reads instead of {option.flag}"
        advice = " Set it in the file."
    elif option is not None:
        reason = f"{script.name} takes {LABELS[field]} as a positional argument"
    elif script.unread:
        reason = f"The options of {script.name} cannot be read from its source ({' and '.join(script.unread)})"
    else:
        reason, advice = f"No known option of {script.name} sets {LABELS[field]}", _own(field, script)
    return f"{reason}: {_plain(value)} reaches it only as {_variable(field)} in the environment.{advice}"


def _only_variable(field: str, value: object) -> str:
    shown = LABELS[field][:1].upper() + LABELS[field][1:]
    return f"{shown}, {_plain(value)}, reaches it only as {_variable(field)} in the environment.{_advice(field)}"


def _variable(field: str) -> str:
    return f"RANKZERO_{field.upper()}"


def _advice(field: str) -> str:
    return f" Write {{{field}}} into the arguments."


def _own(field: str, script: Script) -> str:
    constant = script.constants.get(field)
    return f" Its source has {number(constant)}." if constant is not None else ""


def _shown(field: str, value: object) -> str:
    return f"{LABELS[field]}, {_plain(value)},"


def _plain(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _default(field: str) -> Any:
    return RunSpec.model_fields[field].default


def _is_default(spec: RunSpec, field: str) -> bool:
    return bool(getattr(spec, field) == _default(field))


def _text(spec: RunSpec, field: str) -> str:
    return _plain(spec.scaled_lr if field == "lr" else getattr(spec, field))


def _valid(field: str, text: str | None) -> Any:
    """Return a value of the arguments as the spec has it; the field's default where it is none."""
    try:
        fields: Mapping[str, Any] = {"target": "script.py", field: text}
        return getattr(RunSpec.model_validate(fields), field)
    except ValidationError:
        return _default(field)
