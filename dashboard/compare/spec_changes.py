"""Compare two specs field by field, with the figures that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from domain.field_labels import LABELS
from domain.masking import MASK, masked_args, masked_text, masked_variable
from domain.spec import RunSpec

NOT_COMPARED = frozenset({"name", "snapshot", "args"})
"""Names are irrelevant, code has its own comparison, arguments are compared one by one."""
MORE_LABELS = {
    "wait_for_nodes": "Wait for nodes",
    "probe": "Probe",
    "hang_after_s": "Hang timeout",
    "on_hang": "On a hang",
    "elastic": "Grows and shrinks",
}
PAIRS = {"env": "Environment", "links": "Link", "slurm": "Slurm"}
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


def spec_changes(old: RunSpec, new: RunSpec) -> list[SpecChange]:
    """Return the fields that differ, labelled as in the form, then the figures that follow."""
    return [*_fields(old, new), *_arguments(old.args, new.args), *_figures(old, new)]


def interpreter_changes(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[SpecChange]:
    """Return the differences of two interpreters; empty where one is unknown."""
    if not old or not new:
        return []
    properties = ((name, label, old.get(name), new.get(name)) for name, label in INTERPRETER.items())
    return [SpecChange(f"interpreter.{name}", label, a, b) for name, label, a, b in properties if a != b]


def masked(change: SpecChange) -> SpecChange:
    """Return the change with secrets masked, but still marked as different."""
    old, new = _masked(change.field, change.old), _masked(change.field, change.new)
    if old == new and old is not None:
        old, new = f"{MASK} (one value)", f"{MASK} (another)"
    return replace(change, old=old, new=new)


def label_of(field: str) -> str:
    """Return the form's label of a spec's field."""
    return LABELS.get(field) or MORE_LABELS.get(field) or PAIRS.get(field) or field


def _masked(field: str, value: Any) -> Any:
    kind, _, name = field.partition(".")
    if isinstance(value, str):
        return masked_variable(name, value) if kind == "env" else masked_text(value)
    if not isinstance(value, list):
        return value
    arguments = [str(argument) for argument in value]
    return masked_args([name, *arguments])[1:] if name and kind == "args" else masked_args(arguments)


def _fields(old: RunSpec, new: RunSpec) -> Iterator[SpecChange]:
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    for name in before:
        if name in NOT_COMPARED or before[name] == after[name]:
            continue
        if name in PAIRS:
            yield from _keyed(name, PAIRS[name], before[name], after[name])
        else:
            yield SpecChange(name, label_of(name), before[name], after[name])


def _keyed(field: str, label: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[SpecChange]:
    for key in [*old, *(key for key in new if key not in old)]:
        if old.get(key) != new.get(key):
            yield SpecChange(f"{field}.{key}", f"{label} {key}", old.get(key), new.get(key))


def _arguments(old: Sequence[str], new: Sequence[str]) -> Iterator[SpecChange]:
    """Yield the options that differ; all arguments where an option repeats or only the order differs."""
    before, after = _options(old), _options(new)
    if before is None or after is None or before == after:
        if list(old) != list(new):
            yield SpecChange("args", label_of("args"), list(old), list(new))
        return
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            label = f"Argument {name}" if name else "Arguments"
            yield SpecChange(f"args.{name}" if name else "args", label, before.get(name), after.get(name))


def _options(args: Sequence[str]) -> dict[str, list[str] | bool] | None:
    """Return the values after each option, or True, by its name; leading values have the name ''."""
    by_name: dict[str, list[str]] = {}
    name = ""
    for argument in args:
        if not argument.startswith("-") or _is_number(argument):
            by_name.setdefault(name, []).append(argument)
            continue
        name, equals, value = argument.partition("=")
        if name in by_name:
            return None
        by_name[name] = [value] if equals else []
    return {name: values or True for name, values in by_name.items()}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _figures(old: RunSpec, new: RunSpec) -> Iterator[SpecChange]:
    """Yield the derived figures that differ; the learning rate only where a scaling rule applies."""
    yield from _figure("world_size", "World size", old.world_size, new.world_size)
    yield from _figure("global_batch_size", "Global batch", old.global_batch_size, new.global_batch_size)
    if {old.lr_scaling, new.lr_scaling} != {"none"}:
        yield from _figure("scaled_lr", "Learning rate after scaling", old.scaled_lr, new.scaled_lr)


def _figure(field: str, label: str, old: float | None, new: float | None) -> Iterator[SpecChange]:
    if old != new:
        yield SpecChange(field, label, old, new)
