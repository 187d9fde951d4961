"""Say in words which rank is slow, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.messages import Finding
from domain.performance.slow_ranks import SlowRank
from domain.text.formats import milliseconds, plural

KIND = "slow rank"
MOST_NAMED = 8


class Advice(NamedTuple):
    """A cause in words."""

    sentence: str
    """With {own} and {step}."""
    fix: str


ADVICE = {
    "data": Advice(
        "waits {own} of {step} for data",
        "Look at that node's disk and network, and at its loader: more workers (num_workers), prefetch_factor, "
        "pin_memory, less work in __getitem__, data on a local disk.",
    ),
    "copy": Advice(
        "copies to its device for {own} of {step}",
        "Pin the batches (pin_memory=True) and copy with non_blocking=True; see whether the device's PCIe link is "
        "narrower than the others' (nvidia-smi -q).",
    ),
    "forward": Advice(
        "spends {own} of {step} in the forward pass",
        "See whether its batches are larger or longer than the others', and whether it computes something that the "
        "others do not; compare the device's clocks and temperature.",
    ),
    "backward": Advice(
        "spends {own} of {step} in the backward pass",
        "See whether its batches are larger or longer than the others'; compare the device's clocks and temperature.",
    ),
    "optimizer": Advice(
        "spends {own} of {step} in the optimizer",
        "See whether this rank alone holds optimizer state on the CPU, or steps an optimizer that the others lack.",
    ),
    "checkpoint": Advice(
        "writes checkpoints for {own} of {step}",
        "Save less often, write to a local disk, or save in the background (torch.distributed.checkpoint.async_save).",
    ),
    "barrier": Advice(
        "is busy with code of its own for {own} of {step}, while the others wait for it in a collective that the "
        "script calls",
        "Look at what only this rank does before the barrier (evaluation, logging, downloads under an `if` on its "
        "rank): share it among the ranks, do it less often, or without a barrier.",
    ),
    "other": Advice(
        "spends {own} of {step} outside of loading, computing and saving",
        "Look at what only this rank does between the steps: logging, evaluation, printing under an `if` on its rank. "
        "`rankzero ranks RUN --stacks` shows its line.",
    ),
    "compute": Advice(
        "computes for {own} of {step}",
        "Its device or CPU is slower in everything: look for another process on it, heat, power limits, or another "
        "model of device.",
    ),
    "cpu": Advice(
        "is ready to run but gets no CPU for {own} of {step}",
        "Other processes use this node's CPUs, or the rank has a low priority or too few cores: look at `top`, at nice "
        "and at the container's CPU limit, and at OMP_NUM_THREADS and num_workers.",
    ),
}


def slow_rank_finding(slow: Sequence[SlowRank]) -> Finding | None:
    """Return one finding for the slow ranks, the slowest first; None where there is none."""
    if not slow:
        return None
    unnamed = f" And {plural(len(slow) - MOST_NAMED, 'rank')} more." if len(slow) > MOST_NAMED else ""
    return Finding(
        kind=KIND,
        evidence=" ".join(map(sentence, slow[:MOST_NAMED])) + unnamed,
        meaning="The ranks average their gradients in every step, so each waits for the slowest one.",
        fix=ADVICE[slow[0].cause].fix,
    )


def sentence(slow: SlowRank) -> str:
    """Return the slow rank, its cause and what all ranks lose by it."""
    cause = ADVICE[slow.cause].sentence.format(own=milliseconds(slow.own_s), step=milliseconds(slow.step_s))
    others = "the other" if slow.ranks == 2 else "the others"
    return (
        f"Rank {slow.rank} on {slow.node} {cause}; {others} {milliseconds(slow.others_s)}: "
        f"{slow.ranks} ranks lose {slow.lost_share:.0%}."
    )
