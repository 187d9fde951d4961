"""Adapt the spec of an attempt that runs on fewer nodes: accumulation keeps the global batch. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from domain.spec import RunSpec
from domain.text.formats import learning_rate

MOST_TRIED = 64
"""Numbers of micro-steps tried in search of one that divides the global batch evenly."""


def changes(spec: RunSpec, nodes: int) -> dict[str, Any]:
    """The fields of the spec that differ for an attempt on `nodes` nodes; empty for the number the spec names.

    The reference is the run as launched, not the previous attempt. An optimizer step averages over the same number
    of samples: `accumulate` grows; where it does not divide evenly, the nearest value is taken, with a smaller
    `batch_size` where that is nearer (never a larger one, because it must fit into a GPU). The learning rate of each
    rank is kept, even one computed by a scaling rule from the number of ranks. With `lr_on_resize="scale"` the rule
    is applied to the present number of ranks; without a rule the rate follows the global batch, so that it changes
    only where that could not be kept (linear scaling: Goyal et al. 2017, arXiv:1706.02677)."""
    if nodes == spec.nodes:
        return {}
    fields = {"nodes": nodes, **_batch(spec, nodes)}
    return fields | _rate(spec, effective(spec, fields))


def effective(spec: RunSpec, changed: Mapping[str, Any] | None) -> RunSpec:
    """The spec an attempt runs with."""
    return spec.model_copy(update=dict(changed)) if changed else spec


def sizes(spec: RunSpec) -> list[RunSpec]:
    """The specs that attempts of a run may have, fewest nodes first; at most `MOST_TRIED`."""
    numbers = range(spec.fewest_nodes, spec.nodes + 1)[:MOST_TRIED]
    return [effective(spec, changes(spec, nodes)) for nodes in numbers]


def sentence(spec: RunSpec, nodes: int) -> str:
    """on 1 of 2 nodes, 2 of 4 ranks: global batch 64 kept, accumulation 1 → 2; learning rate 0.1 unchanged"""
    if nodes == spec.nodes:
        return f"on all {nodes} nodes: batch and learning rate as launched"
    now = effective(spec, changes(spec, nodes))
    place = f"on {nodes} of {spec.nodes} nodes, {now.world_size} of {spec.world_size} ranks"
    return "; ".join([f"{place}: {_batch_words(spec, now)}", *_rate_words(spec, now)])


def takes(spec: RunSpec, field: str) -> bool:
    """Whether a recipe or script takes this value from its arguments; it may also read its environment."""
    is_recipe = re.fullmatch(r"\w+", spec.target) is not None and not (spec.entry or spec.module)
    return is_recipe or any(f"{{{field}}}" in argument for argument in spec.args)


def _batch(spec: RunSpec, nodes: int) -> dict[str, int]:
    """The accumulation, and batch per GPU, that come nearest to the global batch of the spec."""
    ranks = nodes * spec.processes_per_node
    if spec.batch_size is None and not takes(spec, "accumulate"):
        return {}
    if spec.batch_size is None or not (takes(spec, "batch_size") and takes(spec, "accumulate")):
        micro_steps = spec.world_size * spec.accumulate / ranks
        fields = {"accumulate": max(1, math.floor(micro_steps + 0.5))}
    else:
        fields = _nearest(spec.batch_size * spec.world_size * spec.accumulate, ranks, spec.batch_size)
    return {name: value for name, value in fields.items() if value != getattr(spec, name)}


def _nearest(samples: int, ranks: int, most: int) -> dict[str, int]:
    """The batch size (at most `most`) and accumulation nearest to `samples` per step; fewest micro-steps in a tie."""
    fewest = math.ceil(samples / (ranks * most))
    tried = []
    for accumulate in range(fewest, min(2 * fewest, fewest + MOST_TRIED) + 1):
        batch_size = min(most, max(1, math.floor(samples / (ranks * accumulate) + 0.5)))
        tried.append((abs(ranks * accumulate * batch_size - samples), accumulate, batch_size))
    _, accumulate, batch_size = min(tried)
    return {"batch_size": batch_size, "accumulate": accumulate}


def _rate(spec: RunSpec, now: RunSpec) -> dict[str, Any]:
    """The changed learning rate fields. `lr` is per GPU, so a rate scaled at launch is kept without its rule."""
    if spec.lr is None:
        return {}
    if spec.lr_on_resize == "keep":
        return {} if spec.lr_scaling == "none" else {"lr": spec.scaled_lr, "lr_scaling": "none"}
    if spec.lr_scaling != "none" or (factor := _samples(now) / _samples(spec)) == 1:
        return {}
    return {"lr": spec.lr * factor}


def _samples(spec: RunSpec) -> int:
    """Samples per optimizer step, or micro-batches where the script sets their size."""
    return spec.world_size * spec.accumulate * (spec.batch_size or 1)


def _batch_words(spec: RunSpec, now: RunSpec) -> str:
    if spec.batch_size is None and not takes(spec, "accumulate"):
        return "its global batch follows the script, which takes neither batch nor accumulation from Rankzero"
    words = [_kept_words(spec, now)]
    if now.accumulate != spec.accumulate:
        words.append(f"accumulation {spec.accumulate} → {now.accumulate}")
        if not takes(spec, "accumulate"):
            words[-1] += " (as far as the script reads RANKZERO_ACCUMULATE)"
    if now.batch_size != spec.batch_size:
        words.append(f"batch per GPU {spec.batch_size} → {now.batch_size}")
    return ", ".join(words)


def _kept_words(spec: RunSpec, now: RunSpec) -> str:
    before, after = _samples(spec), _samples(now)
    if spec.batch_size is None:
        return "global batch kept" if before == after else f"global batch × {after / before:.3g}, the nearest"
    if before == after:
        return f"global batch {before} kept"
    return f"global batch {before} → {after}, the nearest possible on {now.world_size} ranks"


def _rate_words(spec: RunSpec, now: RunSpec) -> list[str]:
    before, after = spec.scaled_lr, now.scaled_lr
    if before is None or after is None:
        return ["learning rate set by the script"]
    if math.isclose(before, after):
        return [f"learning rate {learning_rate(before)} unchanged"]
    return [f"learning rate {learning_rate(before)} → {learning_rate(after)}"]
