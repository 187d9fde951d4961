"""Read figures that a spec leaves to its script: batch size and learning rate from options and constants."""

from __future__ import annotations

from dashboard.script_reader import command
from dashboard.script_reader.proposals import is_whole_batch, option_for
from dashboard.script_reader.reading import Script
from dashboard.script_reader.source import UnreadableScript
from domain.spec import RunSpec


def rate_to_scale(spec: RunSpec, script: Script | UnreadableScript) -> dict[str, float]:
    """Return the script's own learning rate, if a scaling rule needs it and the arguments pass it."""
    is_needed = spec.lr is None and spec.lr_scaling != "none" and hands_over(spec, "lr")
    option = option_for("lr", script.options) if is_needed and isinstance(script, Script) else None
    is_number = option is not None and isinstance(option.default, int | float) and option.default > 0
    return {"lr": float(option.default)} if option and is_number else {}


def own_figures(spec: RunSpec, script: Script | UnreadableScript) -> dict[str, float]:
    """Return the script's own batch size and rate where it trains with them, for the figures of a preview only."""
    if isinstance(script, UnreadableScript):
        return {}
    batch_size, lr = _own_number(spec, "batch_size", script), _own_number(spec, "lr", script)
    figures: dict[str, float] = {}
    if type(batch_size) is int and not is_whole_batch(script.proposals):
        figures["batch_size"] = batch_size
    if lr is not None and spec.lr_scaling == "none":
        figures["lr"] = float(lr)
    return figures


def _own_number(spec: RunSpec, field: str, script: Script) -> int | float | None:
    """Return the script's default or constant, unless the spec or its arguments set the value."""
    option = option_for(field, script.options)
    if getattr(spec, field) is not None:
        return None
    if option is None:
        return script.constants.get(field)
    is_given = option.name in command.named(script.options, spec.args) and not hands_over(spec, field)
    is_number = type(option.default) in (int, float) and option.default > 0
    return option.default if is_number and not is_given else None


def hands_over(spec: RunSpec, field: str) -> bool:
    return any(f"{{{field}}}" in argument for argument in spec.args)
