"""What an attempt on fewer nodes than were asked for does differently: accumulation keeps the global batch; pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from domain.spec import RunSpec

MOST_TRIED = 64
"""Numbers of micro-steps that are looked at for one that divides the global batch evenly."""


def changes(spec: RunSpec, nodes: int) -> dict[str, Any]:
    """The fields of the spec that are different for an attempt on so many nodes; empty on as many as it names.

    The run as launched is the measure, whatever the attempt before had. An optimizer step averages over as many
    samples as there (`accumulate` grows; where it does not divide evenly, the nearest, with a smaller `batch_size`
    where that is nearer: it never grows, for it is what fits into a GPU). The learning rate of each rank stays, also
    where a scaling rule made it from the number of ranks; with `lr_on_resize="scale"` it is the one that rule gives
    for the ranks there are, or without a rule grows and shrinks with the global batch, so that it changes only where
    that could not be kept (linear scaling: Goyal et al. 2017, arXiv:1706.02677)."""
    if nodes == spec.nodes:
        return {}
    found = {"nodes": nodes, **_batch(spec, nodes)}
    return found | _rate(spec, effective(spec, found))


def effective(spec: RunSpec, changed: Mapping[str, Any] | None) -> RunSpec:
    """The spec an attempt runs with."""
    return spec.model_copy(update=dict(changed)) if changed else spec


def sizes(spec: RunSpec) -> list[RunSpec]:
    """What the attempts of a run may be, the fewest nodes first; of very many numbers of nodes the fewest ones."""
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
    """Does a recipe or a script take this value from its arguments? It may also read it from its environment."""
    is_recipe = re.fullmatch(r"\w+", spec.target) is not None and not (spec.entry or spec.module)
    return is_recipe or any(f"{{{field}}}" in argument for argument in spec.args)


def _batch(spec: RunSpec, nodes: int) -> dict[str, int]:
    """Accumulation, and batch per GPU, that come nearest to the global batch of the spec."""
    ranks = nodes * spec.processes_per_node
    if spec.batch_size is None and not takes(spec, "accumulate"):
        return {}
    if spec.batch_size is None or not (takes(spec, "batch_size") and takes(spec, "accumulate")):
        micro_steps = spec.world_size * spec.accumulate / ranks
        found = {"accumulate": max(1, math.floor(micro_steps + 0.5))}
    else:
        found = _nearest(spec.batch_size * spec.world_size * spec.accumulate, ranks, spec.batch_size)
    return {name: value for name, value in found.items() if value != getattr(spec, name)}


def _nearest(samples: int, ranks: int, most: int) -> dict[str, int]:
    """Of at most `most` samples per GPU; of what comes equally near the fewest micro-steps."""
    fewest = math.ceil(samples / (ranks * most))
    tried = []
    for accumulate in range(fewest, min(2 * fewest, fewest + MOST_TRIED) + 1):
        batch_size = min(most, max(1, math.floor(samples / (ranks * accumulate) + 0.5)))
        tried.append((abs(ranks * accumulate * batch_size - samples), accumulate, batch_size))
    _, accumulate, batch_size = min(tried)
    return {"batch_size": batch_size, "accumulate": accumulate}


def _rate(spec: RunSpec, now: RunSpec) -> dict[str, Any]:
    """`lr` stands for one GPU: a rate that was scaled when the run was launched is kept as it is, without a rule."""
    if spec.lr is None:
        return {}
    if spec.lr_on_resize == "keep":
        return {} if spec.lr_scaling == "none" else {"lr": spec.scaled_lr, "lr_scaling": "none"}
    if spec.lr_scaling != "none" or (factor := _samples(now) / _samples(spec)) == 1:
        return {}
    return {"lr": spec.lr * factor}


def _samples(spec: RunSpec) -> int:
    """A step's, or its micro-batches where their size is the script's own."""
    return spec.world_size * spec.accumulate * (spec.batch_size or 1)


def _batch_words(spec: RunSpec, now: RunSpec) -> str:
    if spec.batch_size is None and not takes(spec, "accumulate"):
        return "its global batch follows the script, which takes neither batch nor accumulation from here"
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
    return f"global batch {before} → {after}, the nearest that {now.world_size} ranks can make"


def _rate_words(spec: RunSpec, now: RunSpec) -> list[str]:
    before, after = spec.scaled_lr, now.scaled_lr
    if before is None or after is None:
        return ["learning rate as the script has it"]
    if math.isclose(before, after):
        return [f"learning rate {before:.6g} unchanged"]
    return [f"learning rate {before:.6g} → {after:.6g}"]
