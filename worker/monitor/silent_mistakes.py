"""Detect mistakes that raise no error but spoil a training, from the probe's records of each rank. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from domain.messages import Finding

LARGE_DIFFERENCE = 1e-3
SMALL_DIFFERENCE = 1e-5
"""Relative; ranks on equal devices agree in every bit, on different ones (two GPU models) nearly so."""
UNUSED_CHECKS = 3
DISTINCT_VALUES = 3
DISTINCT_VALUES_ALONE = 8
"""Minimum distinct values to compare batches without indices: a batch of zeros is alike on all ranks."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class RankRecord:
    """Events that the probe recorded in one rank."""

    rank: int
    world_size: int
    step: int = 0
    ended: bool = False
    events: Sequence[Event] = ()

    def of(self, kind: str) -> list[Event]:
        """Return the events of one kind, in order."""
        return [event for event in self.events if event.get("kind") == kind]

    @property
    def is_replica(self) -> bool:
        """Whether each rank holds the whole model and should read different samples; False for sharded models."""
        return any(event.get("replicas") == self.world_size > 1 for event in self.of("ddp"))


def silent_mistakes(records: Mapping[int, RankRecord]) -> list[Finding]:
    """Return all mistakes that are certain from these records, the most severe first."""
    ranks = [records[rank] for rank in sorted(records)]
    checks = (
        _differing_parameters,
        _same_samples,
        _missing_set_epoch,
        _batches_of_one,
        _unused_parameters,
        _unequal_steps,
    )
    return [finding for check in checks for finding in check(ranks)]


def _mistake(kind: str, evidence: str, meaning: str, fix: str) -> Finding:
    return Finding(kind=kind, evidence=evidence, meaning=meaning, fix=fix)


def _differing_parameters(ranks: list[RankRecord]) -> Iterator[Finding]:
    replicas = [record for record in ranks if record.is_replica]
    for first, other in combinations(replicas, 2):
        differences = sorted(_differences(first, other), key=lambda difference: difference[1])
        small = [difference for difference in differences if difference[0] > SMALL_DIFFERENCE]
        if len(small) > 1 or any(difference[0] > LARGE_DIFFERENCE for difference in differences):
            _, step, mine, theirs = max(differences)
            yield _mistake(
                "parameters differ",
                f"After step {step} the same sample of the parameters adds up to {mine:.6g} on rank "
                f"{first.rank} and to {theirs:.6g} on rank {other.rank}.",
                "The ranks no longer train the same model: rank 0's checkpoint holds only what rank 0 learned.",
                "Call the DistributedDataParallel wrapper, not model.module, in the training step; load "
                "weights and build the optimizer in the same way on every rank, before wrapping.",
            )
            return


def _differences(first: RankRecord, other: RankRecord) -> Iterator[tuple[float, int, float, float]]:
    """Yield (relative difference, step, own sum, other sum) for each step at which both have a checksum."""
    theirs = {(event["model"], event["step"]): event for event in other.of("checksum")}
    for mine in first.of("checksum"):
        match = theirs.get((mine["model"], mine["step"]))
        if match is not None:
            size = max(abs(mine["size"]), abs(match["size"]), 1e-30)
            gap = max(abs(mine["sum"] - match["sum"]), abs(mine["size"] - match["size"])) / size
            if gap == gap:  # not NaN: a loss that is not finite is reported elsewhere
                yield gap, mine["step"], mine["sum"], match["sum"]


def _same_samples(ranks: list[RankRecord]) -> Iterator[Finding]:
    replicas = [record for record in ranks if record.is_replica]
    for first, other in combinations(replicas, 2):
        for mine, theirs in zip(first.of("epoch"), other.of("epoch"), strict=False):
            if length := _common_beginning(mine, theirs):
                yield _mistake(
                    "same samples on several ranks",
                    f"Ranks {first.rank} and {other.rank} began an epoch with the same {length}, and "
                    "their first batches are identical.",
                    f"The ranks do the same work: a step on {first.world_size} ranks learns no more than on one.",
                    "Give the DataLoader sampler=DistributedSampler(dataset) instead of shuffle=True; shard an "
                    "iterable data set by rank.",
                )
                return


def _common_beginning(mine: Event, theirs: Event) -> str | None:
    """Return the common beginning in words; None if they differ or too little is recorded."""
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
    """Whether the data itself agrees: equal indices into data sets that differ by rank are no mistake."""
    pairs = zip(mine.get("fields") or (), theirs.get("fields") or (), strict=False)
    return any(ours == others and ours[2] >= distinct for ours, others in pairs)


def _missing_set_epoch(ranks: list[RankRecord]) -> Iterator[Finding]:
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
            yield _mistake(
                "set_epoch never called",
                f"Rank {rank.rank} began {len(epochs)} epochs with its {name} at epoch {epoch} each time, and "
                "read the samples in the same order.",
                "Despite shuffle=True every epoch shows the same batches in the same order.",
                "Call sampler.set_epoch(epoch) at the beginning of every epoch, before the loop over the loader.",
            )
            return


def _batches_of_one(ranks: list[RankRecord]) -> Iterator[Finding]:
    for rank in ranks:
        layers = sum(event.get("batch_norms", 0) for event in rank.of("ddp"))
        is_one = any(event.get("batch_size") == 1 for event in rank.of("epoch"))
        if layers and is_one:
            yield _mistake(
                "batch of 1 with BatchNorm",
                f"Rank {rank.rank} trains {layers} BatchNorm layers on batches of one sample.",
                "Each rank's BatchNorm takes mean and variance from its own batch, and one sample has no spread.",
                "Raise the batch per GPU, or convert with torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).",
            )
            return


def _unused_parameters(ranks: list[RankRecord]) -> Iterator[Finding]:
    for rank in ranks:
        for model in sorted({event["model"] for event in rank.of("unused")}):
            checks = [event for event in rank.of("unused") if event["model"] == model]
            names = set.intersection(*({*event["names"]} for event in checks))
            if len(checks) >= UNUSED_CHECKS and names:
                count = min(event["count"] for event in checks)
                listed = ", ".join(sorted(names)[:3]) + (", …" if count > 3 else "")
                yield _mistake(
                    "unused parameters",
                    f"{count} parameters got no gradient on rank {rank.rank} in the first {len(checks)} steps: "
                    f"{listed}.",
                    "They never change, and DistributedDataParallel searches for them in every step.",
                    "Use them in forward, or set requires_grad_(False) on them; then remove "
                    "find_unused_parameters=True.",
                )
                return


def _unequal_steps(ranks: list[RankRecord]) -> Iterator[Finding]:
    ended = [record for record in ranks if record.ended and record.is_replica]
    if len(ended) < 2 or len({record.step for record in ended}) == 1:
        return
    fewest, most = min(ended, key=lambda record: record.step), max(ended, key=lambda record: record.step)
    yield _mistake(
        "unequal steps",
        f"Rank {fewest.rank} made {fewest.step} steps, rank {most.rank} made {most.step}.",
        "The last steps of some ranks were not averaged with the others', or were lost.",
        "Give every rank the same number of batches: drop_last=True, or DistributedSampler, which pads them.",
    )
