"""Name the rank that the others wait for, and its cause, from the time outside of collectives. Pure.

A collective evens out the step time of all ranks: the slow one is that which spends the least time in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, median_low
from typing import NamedTuple

from domain.messages import Finding
from domain.performance.phases import PHASES, PhaseTotals
from domain.text.formats import milliseconds, plural

BUCKETS = 12
MIN_BUCKETS = 4
MIN_BUCKET_STEPS = 2
RECENT_S = 120.0
MIN_S = 6.0
MIN_SHARE = 0.15
"""Share of the step that is lost; less is chance on a machine that does something else as well."""
MIN_LOST_S = 0.001
STEADY_SHARE = 0.75
"""Share of the buckets in which the rank is the slow one."""
MAX_STEP_RATIO = 1.1
"""Ranks whose steps differ by more do not wait for each other in every step."""
COMPUTE = ("forward_s", "backward_s", "optimizer_s")
MAIN_SHARE = 0.5
Means = Mapping[str, float]


@dataclass(frozen=True)
class SlowRank:
    """A rank that the others wait for."""

    rank: int
    node: str
    cause: str
    """data, copy, forward, backward, optimizer, checkpoint, barrier, other, compute or cpu."""
    lost_share: float
    """Share of every rank's step that would be saved if this rank were as fast as the others."""
    step_s: float
    own_s: float
    """Seconds of a step that the cause takes on this rank."""
    others_s: float
    """The same on the others."""
    ranks: int


def slow_ranks(ranks: Collection[PhaseTotals], world_size: int) -> list[SlowRank]:
    """Return the slow ranks, the slowest first; none where a rank is missing or the ranks do not wait."""
    if len(ranks) < max(2, world_size):
        return []
    buckets = _buckets(ranks)
    if len(buckets) < MIN_BUCKETS or not _is_in_step(buckets):
        return []
    slow = _slow(buckets)
    if not slow or 2 * len(slow) > len(ranks):
        return []
    verdicts = [_verdict(totals, slow, buckets) for totals in ranks if totals.rank in slow]
    certain = [verdict for verdict in verdicts if verdict is not None]
    return sorted(certain, key=lambda verdict: -verdict.lost_share)


def _buckets(ranks: Collection[PhaseTotals]) -> list[dict[int, Means]]:
    """Return the mean step of every rank in each of the newest spans of steps, which all of them made."""
    last = min(totals.steps[-1] for totals in ranks)
    first = max(_recent_step(totals) for totals in ranks)
    records = min(sum(first <= step <= last for step in totals.steps) for totals in ranks) - 1
    if records < MIN_BUCKETS or min(_seconds(totals, first, last) for totals in ranks) < MIN_S:
        return []
    width = max(MIN_BUCKET_STEPS, (last - first) / min(BUCKETS, records))
    edges = [first + width * number for number in range(int((last - first) / width + 1e-9) + 1)]
    return [{totals.rank: totals.mean(begin, end) for totals in ranks} for begin, end in pairwise(edges)]


def _recent_step(totals: PhaseTotals) -> int:
    since = totals.walls[-1] - RECENT_S
    return next(step for step, wall in zip(totals.steps, totals.walls, strict=True) if wall >= since)


def _seconds(totals: PhaseTotals, first: float, last: float) -> float:
    means = totals.mean(first, last) if last > first else {}
    return sum(means.get(name, 0.0) for name in PHASES) * (last - first)


def _is_in_step(buckets: Sequence[Mapping[int, Means]]) -> bool:
    steps = [median(_step(bucket[rank]) for bucket in buckets) for rank in buckets[0]]
    return 0 < max(steps) <= MAX_STEP_RATIO * min(steps)


def _slow(buckets: Sequence[Mapping[int, Means]]) -> set[int]:
    """Return the ranks that steadily need longer for their own work than most, while the others wait."""
    return {
        rank
        for rank in buckets[0]
        if sum(_is_slow_in(bucket, rank) for bucket in buckets) >= STEADY_SHARE * len(buckets)
    }


def _is_slow_in(bucket: Mapping[int, Means], rank: int) -> bool:
    others = [means for other, means in bucket.items() if other != rank]
    excess = _own(bucket[rank]) - median_low([_own(means) for means in others])
    waited = median_low([means["exposed_comm_s"] for means in others]) - bucket[rank]["exposed_comm_s"]
    least = max(MIN_LOST_S, MIN_SHARE * _step(bucket[rank]))
    return excess >= least and waited >= least / 2


def _verdict(totals: PhaseTotals, slow: Collection[int], buckets: Sequence[Mapping[int, Means]]) -> SlowRank | None:
    mine = _typical([bucket[totals.rank] for bucket in buckets])
    others = [_typical([bucket[rank] for bucket in buckets]) for rank in buckets[0] if rank not in slow]
    step_s = median(_step(bucket[totals.rank]) for bucket in buckets)
    lost_s = median(
        _own(bucket[totals.rank]) - max(_own(means) for rank, means in bucket.items() if rank not in slow)
        for bucket in buckets
    )
    if lost_s < max(MIN_LOST_S, MIN_SHARE * step_s):
        return None
    usual = {name: median_low([means[name] for means in others]) for name in mine}
    cause, own_s, others_s = _cause(mine, usual)
    share = min(1.0, lost_s / step_s)
    return SlowRank(totals.rank, totals.node, cause, share, step_s, own_s, others_s, len(buckets[0]))


def _cause(mine: Means, usual: Means) -> tuple[str, float, float]:
    """Return the cause, and the seconds it takes on the slow rank and on the others."""
    excess = {name: max(0.0, mine[name] - usual[name]) for name in PHASES if name != "exposed_comm_s"}
    total = sum(excess.values())
    if mine["cpu_wait_s"] - usual["cpu_wait_s"] >= MAIN_SHARE * total:
        return "cpu", mine["cpu_wait_s"], usual["cpu_wait_s"]
    main = max(excess, key=lambda name: excess[name])
    if excess[main] < MAIN_SHARE * total or _computes_slowly(main, mine, usual):
        return "compute", sum(mine[name] for name in COMPUTE), sum(usual[name] for name in COMPUTE)
    cause = main.removesuffix("_s")
    if cause == "other" and usual["called_comm_s"] >= MAIN_SHARE * usual["exposed_comm_s"]:
        cause = "barrier"
    return cause, mine[main], usual[main]


def _computes_slowly(main: str, mine: Means, usual: Means) -> bool:
    """Whether forward and backward pass are slower alike."""
    slowdown = mine[main] / usual[main] - 1 if usual[main] else 0.0
    return main in COMPUTE and all(
        mine[name] > usual[name] * (1 + slowdown / 2) for name in ("forward_s", "backward_s")
    )


def _typical(steps: Sequence[Means]) -> Means:
    return {name: median(means[name] for means in steps) for name in steps[0]}


def _step(means: Means) -> float:
    return sum(means[name] for name in PHASES)


def _own(means: Means) -> float:
    return _step(means) - means["exposed_comm_s"]


# Say in words which rank is slow, and what to do about it. Pure.

KIND = "slow rank"
MOST_NAMED = 8


def sentence(slow: SlowRank) -> str:
    """Return the slow rank, its cause and what all ranks lose by it."""
    cause = ADVICE[slow.cause].sentence.format(own=milliseconds(slow.own_s), step=milliseconds(slow.step_s))
    others, all_ranks = ("the other", "both ranks") if slow.ranks == 2 else ("the others", f"all {slow.ranks} ranks")
    return (
        f"Rank {slow.rank} on {slow.node} {cause}; {others} {milliseconds(slow.others_s)}: "
        f"{all_ranks} lose {100 * slow.lost_share:.0f} % of their time."
    )


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
        "runs code of its own for {own} of {step}, while the others wait for it in a collective that the script calls",
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
