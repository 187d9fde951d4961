"""Warnings about a plan: rules of thumb, and conflicts with what the script's source says."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.script_reader import command
from dashboard.script_reader.launchers import Guess
from dashboard.script_reader.proposals import PRECISIONS, option_for
from dashboard.script_reader.reading import Script
from dashboard.script_reader.source import UnreadableScript
from domain.spec import RunSpec, lr_factor

LARGE_FACTOR = 8


def launch_warnings(spec: RunSpec, script: Script | UnreadableScript) -> list[str]:
    """Return the warnings about a plan, one sentence each, the most important first."""
    if isinstance(script, UnreadableScript):
        messages = [str(script)] if script.is_of_content else []
        return [*messages, *_one_process(spec), *_warm_up(spec)]
    messages = [*_strategy(spec, script), *_launcher(spec, script.guess), *_arguments(spec, script)]
    one_process = [] if script.guess.strategy == "dp" else _one_process(spec)
    return [*messages, *one_process, *_warm_up(spec)]


def _launcher(spec: RunSpec, guess: Guess) -> Iterator[str]:
    if spec.strategy in ("dp", "single"):
        return
    if guess.is_certain and guess.launcher != spec.effective_launcher:
        yield f"The launcher is {spec.effective_launcher}, but {_lower(guess.reason)} Its launcher is {guess.launcher}."
    elif guess.strategy == "single" and spec.world_size > 1:
        yield f"{guess.reason} The strategy single takes one slot."
    if guess.devices is not None and guess.devices != spec.processes_per_node:
        yield f"{guess.reason} It requires {guess.devices}; the run uses {spec.processes_per_node} on each node."
    yield from guess.warnings


def _strategy(spec: RunSpec, script: Script) -> Iterator[str]:
    """Warn of a strategy that the script itself has to implement and does not."""
    if "strategy" in script.variables or any("fsdp" in argument.lower() for argument in spec.args):
        return
    if spec.strategy == "fsdp" and not script.shards:
        yield (
            f"Nothing in {script.name} shards its parameters (no fully_shard, no FullyShardedDataParallel): strategy "
            "fsdp reaches it only as RANKZERO_STRATEGY in the environment, and every rank holds the full model."
        )
    elif spec.strategy == "dp" and script.guess.strategy != "dp" and (spec.gpus_per_node or 1) > 1:
        yield (
            f"Nothing in {script.name} uses DataParallel: with strategy dp it is one process, which uses one of its "
            f"{spec.gpus_per_node} GPUs."
        )


def _arguments(spec: RunSpec, script: Script) -> Iterator[str]:
    named = command.named(script.options, spec.args)
    yield from _own_values_kept(spec, script, named)
    yield from _missing(spec, script, named)


def _own_values_kept(spec: RunSpec, script: Script, named: set[str]) -> Iterator[str]:
    """Warn where the script's own value differs from the plan's default, and where a resume would start over."""
    option = option_for("resume", script.options)
    is_wired = spec.hands_over("resume") or "resume" in script.variables
    if option is not None and not is_wired and option.name not in named and spec.resume is None:
        yield (
            f"The arguments do not contain {{resume}}: when resumed, the run starts over. Add {option.flag}={{resume}}."
        )
    option = option_for("accumulate", script.options)
    if option is not None and spec.accumulate == 1 and option.name not in named and _is_above_one(option.default):
        yield f"The script's own {option.flag} is {option.default}; an accumulation of 1 does not change it."
    words = {spelling for names in PRECISIONS.values() for spelling in names}
    option = next((o for o in script.options if o.name in ("dtype", "precision") and o.default in words), None)
    if spec.precision == "fp32" and option is not None and option.name not in named:
        yield f"The script's own {option.flag} is {option.default}; fp32 does not change it."


def _missing(spec: RunSpec, script: Script, named: set[str]) -> Iterator[str]:
    needed = [o for o in script.options if o.required and not o.command and o.name not in named]
    flags = [option.flag for option in needed if option.kind not in ("positional", "positionals")]
    words = [option.flag for option in needed if option.kind in ("positional", "positionals")]
    if not all(argument.startswith("-") for argument in spec.args):
        words = []  # a positional argument is given; only the script knows which one it is
    if flags or words:
        yield f"{script.name} requires {' and '.join([*words, *flags])}, which the arguments do not contain."


def _one_process(spec: RunSpec) -> Iterator[str]:
    if spec.strategy == "dp" and (spec.gpus_per_node or 1) > 1:
        yield "DataParallel is one process that drives all GPUs; ddp is faster even on one node."


def _warm_up(spec: RunSpec) -> Iterator[str]:
    factor = lr_factor(spec.lr_scaling, spec.world_size)
    if spec.lr_scaling != "none" and spec.lr is None:
        yield "The scaling rule needs a learning rate: the script's own is unknown and stays unchanged."
    elif factor >= LARGE_FACTOR and not spec.warmup_steps:
        yield (
            f"Warm up for about 5 epochs or 500 steps: untrained weights change so fast that a rate {factor:g} times "
            "larger diverges at once; a gradual increase keeps the accuracy of one GPU (Goyal et al. 2017)."
        )
    elif factor > 1 and not spec.warmup_steps:
        yield f"A short warm-up (about 100 steps) makes it safe to start with a {factor:.3g} times larger rate."


def _is_above_one(number: object) -> bool:
    return isinstance(number, int | float) and number > 1


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
