"""What a plan means: ranks, global batch, learning rate, warm-up advice, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dashboard.views.formats import count, learning_rate, plural
from db.spec import RunSpec
from worker.launch import recipe_names


class Slots(Protocol):
    """What is asked of a node here."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def free(self) -> int: ...


@dataclass(frozen=True)
class Room:
    """Whether the plan fits now, later, or not on what is known."""

    verdict: str
    """fits, waits or missing."""
    sentence: str


def world_size(spec: RunSpec, device: str) -> str:
    """2 nodes × 4 GPUs = 8 ranks."""
    per_node = plural(spec.processes_per_node, device, "processes" if device == "process" else None)
    return f"{plural(spec.nodes, 'node')} × {per_node} = {plural(spec.world_size, 'rank')}"


def global_batch(spec: RunSpec, is_own: bool) -> tuple[int | None, str]:
    """The samples of one optimizer step, and the multiplication they come from."""
    owner = _owner(spec)
    factors = f"× {plural(spec.world_size, 'rank')} × {count(spec.accumulate)} accumulated"
    if spec.batch_size is None:
        return None, f"the script's own batch {factors}"
    own = f" ({owner}’s own)" if is_own else ""
    product = spec.batch_size * spec.world_size * spec.accumulate
    return product, f"{count(spec.batch_size)}{own} {factors} = {count(product)} samples a step"


def scaled_lr(spec: RunSpec, is_own: bool) -> tuple[float | None, str]:
    """The learning rate every rank trains with, and the sentence that explains it."""
    if spec.lr is None:
        return None, "the script's own; the scaling rule applies to a rate given here"
    base = f"{learning_rate(spec.lr)}{f' ({_owner(spec)}’s own)' if is_own else ''}"
    if spec.lr_scaling == "none" or spec.world_size == 1:
        return spec.scaled_lr, f"{base} on {plural(spec.world_size, 'rank')}, not scaled"
    return spec.scaled_lr, (
        f"{base} on one GPU becomes {learning_rate(spec.scaled_lr)} "
        f"on {plural(spec.world_size, 'rank')} ({spec.lr_scaling})"
    )


def advice(spec: RunSpec) -> list[str]:
    """What experience says about this plan, one sentence each, the most important first."""
    return [*_scaling(spec), *_batch_norm(spec)]


def room(spec: RunSpec, nodes: Sequence[Slots]) -> Room:
    """Is there room for the plan on the nodes it may get? One that is too large can be studied all the same."""
    need = spec.gpus_per_node or 1
    alive = [node for node in nodes if node.state == "alive"]
    free = sorted((n for n in alive if n.free >= need), key=lambda n: (n.free, n.name))[: spec.nodes]
    able = sorted((n for n in alive if n.slots >= need), key=lambda n: (-n.free, n.name))[: spec.nodes]
    if len(free) == spec.nodes:
        return Room("fits", f"Needs {_shares(need, free)}. It starts at once.")
    if len(able) == spec.nodes:
        busy = " and ".join(f"{n.free} of {plural(n.slots, 'slot')} free on node {n.name}" for n in able)
        return Room("waits", f"Needs {plural(need, 'slot')} a node, {busy}: it waits until runs there end.")
    if not alive and (spec.labels or spec.on_nodes):
        return Room("missing", "No node that is connected has that name and these labels.")
    if not alive:
        return Room("missing", "No node is connected. The plan can be studied; start a worker to run it.")
    largest = max(node.slots for node in alive)
    return Room(
        "missing",
        f"Needs {plural(spec.nodes, 'node')} with {plural(need, 'slot')} each, but only "
        f"{plural(len(alive), 'node is', 'nodes are')} connected, the largest with "
        f"{plural(largest, 'slot')}. The plan can be studied; start more workers to run it.",
    )


def _owner(spec: RunSpec) -> str:
    return "recipe" if spec.target in recipe_names() else "script"


def _shares(need: int, chosen: Sequence[Slots]) -> str:
    return " and ".join(f"{need} of {plural(n.free, 'free slot')} on node {n.name}" for n in chosen)


def _scaling(spec: RunSpec) -> list[str]:
    if spec.lr is not None and spec.lr_scaling == "none" and spec.world_size > 1:
        return [
            f"Each step averages over {spec.world_size} times the samples of one GPU and usually bears "
            "a larger rate: the linear rule for SGD, sqrt for Adam."
        ]
    return []


def _batch_norm(spec: RunSpec) -> list[str]:
    if spec.target != "image_classifier" or spec.world_size == 1:
        return []
    seen = "its own batch" if spec.batch_size is None else f"its own {plural(spec.batch_size, 'sample')}"
    if "batch" in spec.args or "--norm=batch" in spec.args:
        return [f"BatchNorm normalises over what one rank sees, {seen}, not over the global batch."]
    return [f"GroupNorm is the same on any number of ranks; with --norm batch each rank sees only {seen}."]
