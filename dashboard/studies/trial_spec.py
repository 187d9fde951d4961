"""The spec of a trial: each parameter becomes a field of the spec or an argument of the script."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.script_reader import command, targets
from dashboard.script_reader.options import Option, written
from dashboard.script_reader.reading import Script
from domain.choices import RECIPES
from domain.launch.plan import program_name
from domain.requests.errors import InvalidRequest
from domain.spec import PASSED, RunSpec
from domain.sweeps import Value, as_argument, params_in_words
from domain.text.formats import as_list


def trial_spec(base: RunSpec, params: Mapping[str, Value]) -> RunSpec:
    """Return the base with a trial's parameters. Raises InvalidRequest, ValidationError."""
    script = targets.script_of(base)
    fields: dict[str, Value] = {}
    args = list(base.args)
    for name, value in params.items():
        if name in SIZE or (name in PASSED and _takes_field(base, script, name)):
            fields[name] = value
        elif any(f"{{{name}}}" in argument for argument in args):
            args = [argument.replace(f"{{{name}}}", as_argument(value)) for argument in args]
        elif proposed := _proposed(script, name):
            fields[name] = value
            args.append(proposed)
        else:
            args += _arguments(base, script, name, value)
    changes = fields | {"args": args, "name": f"{program_name(base)} {params_in_words(params)}"[:200]}
    return RunSpec.model_validate(base.model_dump() | changes)


SIZE = ("nodes", "gpus_per_node", "strategy", "lr_scaling")
"""Fields that Rankzero itself carries out, whatever the script takes."""
OFF = ("false", "0", "no", "off", "False")


def takes(base: RunSpec, name: str) -> bool:
    """Whether a field of the form certainly reaches the program."""
    script = targets.script_of(base)
    has_option = script is not None and script.option(name) is not None
    return _takes_field(base, script, name) or _proposed(script, name) is not None or has_option


def _takes_field(base: RunSpec, script: Script | None, name: str) -> bool:
    """Whether the field reaches the program without a further argument."""
    if base.target in RECIPES or base.hands_over(name):
        return True
    return script is not None and name in script.variables


def _proposed(script: Script | None, name: str) -> str | None:
    """Return the argument with which the form would hand the field to the script's option."""
    proposals = script.proposals if script else []
    return next((p.argument for p in proposals if p.field == name and p.is_ticked and not p.only_when), None)


def _arguments(base: RunSpec, script: Script | None, name: str, value: Value) -> list[str]:
    text = as_argument(value)
    if script is None or not script.options:
        return [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    option = script.option(name) or script.option(name.replace("-", "_"))
    if option is None:
        raise InvalidRequest(
            "parameters",
            f"parameters: {script.name} has no option {name!r}; it has {_names(script)}. Name one of them, or place "
            f"the value in the arguments yourself: -- --option={{{name}}}.",
        )
    if command.named([option], base.args):
        raise InvalidRequest("parameters", f"parameters: {name} is also set in the arguments; leave it out there.")
    return _written(option, text)


def _written(option: Option, text: str) -> list[str]:
    return written(option, text not in OFF if option.kind == "switch" else text)


def _names(script: Script) -> str:
    return as_list([option.name for option in script.options], 12)
