"""Pure: mistakes that raise no error and spoil a training, found in what the probe noted in each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

LARGE_DIFFERENCE = 1e-3
SMALL_DIFFERENCE = 1e-5
"""Relative; ranks of one kind agree in every bit, of several kinds (two GPU models) nearly so."""
UNUSED_CHECKS = 3
DISTINCT_VALUES = 3
DISTINCT_VALUES_ALONE = 8
"""A batch of zeros is alike on all ranks and says nothing; without indices it must say more."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class RankRecord:
    """What the probe noted in one rank."""

    rank: int
    world_size: int
    step: int = 0
    ended: bool = False
    events: Sequence[Event] = ()

    def of(self, kind: str) -> list[Event]:
        """Events of one kind, in order."""
        return [event for event in self.events if event.get("kind") == kind]

    @property
    def is_replica(self) -> bool:
        """Every rank holds the same model and should read other samples: not so where a model is divided."""
        return any(event.get("replicas") == self.world_size > 1 for event in self.of("ddp"))


@dataclass(frozen=True)
class Mistake:
    """One mistake: what was seen in this run, what it means, how to mend it."""

    kind: str
    evidence: str
    meaning: str
    mend: str


def silent_mistakes(records: Mapping[int, RankRecord]) -> list[Mistake]:
    """All that is certain from these records, the gravest first."""
    ranks = [records[rank] for rank in sorted(records)]
    checks = (_differing, _same_samples, _forgotten_epochs, _lonely_batches, _unused, _unequal)
    return [finding for check in checks for finding in check(ranks)]


def _differing(ranks: list[RankRecord]) -> Iterator[Mistake]:
    replicas = [each for each in ranks if each.is_replica]
    for first, other in combinations(replicas, 2):
        found = sorted(_differences(first, other), key=lambda each: each[1])
        small = [each for each in found if each[0] > SMALL_DIFFERENCE]
        if len(small) > 1 or any(each[0] > LARGE_DIFFERENCE for each in found):
            _, step, mine, others = max(found)
            yield Mistake(
                "parameters differ",
                f"After step {step} the same sample of the parameters adds up to {mine:.6g} on rank "
                f"{first.rank} and to {others:.6g} on rank {other.rank}.",
                "The ranks no longer train one model: rank 0's checkpoint holds only what rank 0 learned.",
                "Call the DistributedDataParallel wrapper, not model.module, in the training step; load weights "
                "and build the optimizer alike on every rank, before wrapping.",
            )
            return


def _differences(first: RankRecord, other: RankRecord) -> Iterator[tuple[float, int, float, float]]:
    """(relative difference, step, one sum, the other) wherever both have a checksum."""
    theirs = {(event["model"], event["step"]): event for event in other.of("checksum")}
    for mine in first.of("checksum"):
        match = theirs.get((mine["model"], mine["step"]))
        if match is not None:
            size = max(abs(mine["size"]), abs(match["size"]), 1e-30)
            gap = max(abs(mine["sum"] - match["sum"]), abs(mine["size"] - match["size"])) / size
            if gap == gap:  # not NaN: a loss that is no number is told elsewhere
                yield gap, mine["step"], mine["sum"], match["sum"]


def _same_samples(ranks: list[RankRecord]) -> Iterator[Mistake]:
    replicas = [each for each in ranks if each.is_replica]
    for first, other in combinations(replicas, 2):
        for mine, theirs in zip(first.of("epoch"), other.of("epoch"), strict=False):
            if length := _common_beginning(mine, theirs):
                yield Mistake(
                    "same samples on several ranks",
                    f"Ranks {first.rank} and {other.rank} began an epoch with the same {length}, and their "
                    "first batches are alike.",
                    f"The ranks do the same work: {first.world_size} ranks learn no more in a step than one.",
                    "Give the DataLoader sampler=DistributedSampler(dataset) instead of shuffle=True; shard an "
                    "iterable data set by rank.",
                )
                return


def _common_beginning(mine: Event, theirs: Event) -> str | None:
    """In words; None when they differ, or too little is known."""
    if mine.get("dataset_length") != theirs.get("dataset_length"):
        return None
    ours, others = mine.get("digests") or {}, theirs.get("digests") or {}
    common = max(ours.keys() & others.keys(), key=int, default=None)
    if common is None:
        is_unknown = not ours and not others
        return "batch" if is_unknown and _same_batch(mine, theirs, DISTINCT_VALUES_ALONE) else None
    is_same = ours[common] == others[common] and _same_batch(mine, theirs, DISTINCT_VALUES)
    return f"{common} samples" if is_same and int(common) > 1 else None


def _same_batch(mine: Event, theirs: Event, distinct: int) -> bool:
    """Equal indices into data sets that differ by rank are no mistake: the data itself must agree."""
    pairs = zip(mine.get("fields") or (), theirs.get("fields") or (), strict=False)
    return any(ours == others and ours[2] >= distinct for ours, others in pairs)


def _forgotten_epochs(ranks: list[RankRecord]) -> Iterator[Mistake]:
    for rank in ranks:
        epochs = [
            event
            for event in rank.of("epoch")
            if event.get("sampler", {}).get("shuffle") and event["sampler"].get("replicas", 1) > 1
        ]
        settings = {event["sampler"]["epoch"] for event in epochs}
        orders = {tuple(sorted(event["digests"].items())) for event in epochs if event.get("digests")}
        if len(epochs) > 1 and len(settings) == 1 and len(orders) == 1:
            name, epoch = epochs[0]["sampler"]["type"], settings.pop()
            yield Mistake(
                "set_epoch never called",
                f"Rank {rank.rank} began {len(epochs)} epochs with its {name} at epoch {epoch} each time, and "
                "read the samples in the same order.",
                "Despite shuffle=True every epoch shows the same batches in the same order.",
                "Call sampler.set_epoch(epoch) at the beginning of every epoch, before the loop over the loader.",
            )
            return


def _lonely_batches(ranks: list[RankRecord]) -> Iterator[Mistake]:
    for rank in ranks:
        layers = sum(event.get("batch_norms", 0) for event in rank.of("ddp"))
        is_one = any(event.get("batch_size") == 1 for event in rank.of("epoch"))
        if layers and is_one:
            yield Mistake(
                "batch of 1 with BatchNorm",
                f"Rank {rank.rank} trains {layers} BatchNorm layers on batches of one sample.",
                "Each rank's BatchNorm takes mean and variance from its own batch, and one sample has no spread.",
                "Raise the batch per GPU, or convert with torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).",
            )
            return


def _unused(ranks: list[RankRecord]) -> Iterator[Mistake]:
    for rank in ranks:
        for model in sorted({event["model"] for event in rank.of("unused")}):
            checks = [event for event in rank.of("unused") if event["model"] == model]
            names = set.intersection(*({*event["names"]} for event in checks))
            if len(checks) >= UNUSED_CHECKS and names:
                count = min(event["count"] for event in checks)
                listed = ", ".join(sorted(names)[:3]) + (", …" if count > 3 else "")
                yield Mistake(
                    "unused parameters",
                    f"{count} parameters got no gradient on rank {rank.rank} in the first {len(checks)} steps: "
                    f"{listed}.",
                    "They never change, and DistributedDataParallel searches for them in every step.",
                    "Use them in forward, or set requires_grad_(False) on them; then leave out "
                    "find_unused_parameters=True.",
                )
                return


def _unequal(ranks: list[RankRecord]) -> Iterator[Mistake]:
    ended = [each for each in ranks if each.ended and each.is_replica]
    if len(ended) < 2 or len({each.step for each in ended}) == 1:
        return
    few, many = min(ended, key=lambda each: each.step), max(ended, key=lambda each: each.step)
    yield Mistake(
        "unequal steps",
        f"Rank {few.rank} made {few.step} steps, rank {many.rank} made {many.step}.",
        "The last steps of some ranks were not averaged with the others', or were lost.",
        "Give every rank as many batches: drop_last=True, or DistributedSampler, which evens them out.",
    )
