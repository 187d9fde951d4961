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
from domain.spec import LABELS, RunSpec


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
EMPTY: dict[str, Any] = {
    **EMPTY_CODE,
    "nodes": "1",
    "lr_scaling": "none",
    "precision": "fp32",
    "accumulate": "1",
    "strategy": "ddp",
    "launcher": "automatic",
    "wait_for_nodes": False,
    "probe": True,
    "secrets": [],
    "on_hang": "report",
    "max_restarts": "0",
    "on_lost_node": "wait",
    "lr_on_resize": "keep",
    "torchrun_restarts": "0",
    "project": "default",
    "stop_grace_s": "30",
    "priority": "0",
    "pool": "nodes",
    **dict.fromkeys(
        "name gpus_per_node batch_size lr warmup_steps epochs max_steps seed args env python"
        " stage environment workdir links resume printed_pattern hang_after_s labels on_nodes min_nodes"
        " partition account time_limit sbatch_options".split(),
        "",
    ),
}
"""The values of an empty form."""
_PLAIN = (
    "name project nodes gpus_per_node batch_size lr lr_scaling warmup_steps epochs max_steps"
    " precision accumulate strategy seed python environment workdir resume printed_pattern stop_grace_s"
    " hang_after_s on_hang priority max_restarts min_nodes on_lost_node lr_on_resize torchrun_restarts"
).split()
_SLURM = ("partition", "account", "time_limit")


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
    spec_values = spec.model_dump() | {str(name): text for name, text in spec.as_variables.items()}
    values = EMPTY | {name: _shown(spec_values[name]) for name in _PLAIN} | code_values(spec, recipes)
    return values | {
        "nodes": spec.node_range,
        "min_nodes": "" if spec.elastic else _shown(spec.min_nodes),
        "launcher": spec.launcher or "automatic",
        "environment": "" if spec.environment == "auto" else spec.environment,
        "wait_for_nodes": spec.wait_for_nodes,
        "probe": spec.probe,
        "args": shlex.join(spec.args),
        "env": _lines(spec.env),
        "secrets": list(spec.secrets),
        "links": _lines(spec.links),
        "stage": _lines(spec.stage),
        "labels": _lines(spec.labels),
        "on_nodes": ", ".join(spec.on_nodes),
        "pool": spec.pool,
        **{name: _shown(spec_values["slurm"][name]) for name in _SLURM},
        "sbatch_options": shlex.join(spec.slurm.options),
    }


def _read_fields(values: Mapping[str, Any], refusals: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: text for name in _PLAIN if (text := stripped(values, name))}
    fields |= spec_fields(values)
    if "target" not in fields:
        refusals["target"] = f"{LABELS['target']}: {MISSING[values.get('source') or RECIPE]}"
        fields["target"] = STAND_IN
    fields["wait_for_nodes"] = bool(values.get("wait_for_nodes"))
    fields["probe"] = bool(values.get("probe", True))
    fields["secrets"] = list(values.get("secrets") or [])
    if values.get("launcher") not in (None, "automatic"):
        fields["launcher"] = values["launcher"]
    for name, parse in _PARSED:
        _parse(fields, name, parse, str(values.get(name) or ""), refusals)
    _read_slurm(fields, values, refusals)
    return fields


def _read_slurm(fields: dict[str, Any], values: Mapping[str, Any], refusals: dict[str, str]) -> None:
    """Read the Slurm fields, if Slurm is chosen."""
    if values.get("pool") != "slurm":
        return
    fields["pool"] = "slurm"
    fields["slurm"] = {name: text for name in _SLURM if (text := stripped(values, name))}
    _parse(fields, "sbatch_options", shlex.split, str(values.get("sbatch_options") or ""), refusals)
    fields["slurm"]["options"] = fields.pop("sbatch_options", [])


def _parse(fields: dict[str, Any], name: str, parse: Callable[[str], Any], text: str, refusals: dict[str, str]) -> None:
    try:
        fields[name] = parse(text)
    except ValueError as error:
        refusals[name] = f"{LABELS[name]}: {str(error)[:1].lower()}{str(error)[1:].rstrip('.')}."


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


_PARSED: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("args", shlex.split),
    ("env", _pairs),
    ("links", _pairs),
    ("stage", _pairs),
    ("labels", _pairs),
    ("on_nodes", _names),
)


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
        name = {"options": "sbatch_options"}.get(str(error["loc"][1]), str(error["loc"][1]))
        sentence = sentence.partition(" ")[2] if sentence.startswith("slurm.") else sentence
    if name is None:
        # The message of a rule between fields begins with the field to change.
        name = next((name_in_text for name_in_text in sentence.split() if name_in_text in LABELS), "target")
    sentence = sentence.removeprefix(f"{name} ")
    refusals.setdefault(name, f"{LABELS.get(name, name)} {sentence}" if sentence[0].islower() else sentence)


def _draft(fields: Mapping[str, Any], refusals: Mapping[str, str]) -> RunSpec | None:
    valid = {name: value for name, value in fields.items() if name not in refusals or name == "target"}
    for _ in range(3):  # fixing one error can reveal another
        further: dict[str, str] = {}
        if (spec := _validated(valid, further)) is not None:
            return spec
        valid = {name: value for name, value in valid.items() if name not in further}
        if further.keys() & {*_SLURM, "sbatch_options"}:
            valid.pop("slurm", None)
    return None


def _shown(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) and value >= 1 else str(value)


def _lines(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in pairs.items())
