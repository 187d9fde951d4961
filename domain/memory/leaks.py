"""Name the ranks whose memory grows with every step, and when it is full. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from domain.memory.growth import Growth, seconds_until_full
from domain.messages import Finding
from domain.text.formats import as_list, duration_words, size

KIND = "memory leak"
MOST_NAMED = 8
MEANING = (
    "Something is kept from every step. When the memory is full the kernel kills a process, or the next "
    "allocation fails, and the run ends."
)
UNTIL_THEN = "Until it is found, save checkpoints often enough to resume from."


@dataclass(frozen=True)
class Place:
    """A kind of memory that can fill up."""

    series: str
    """Its samples, after `rankR/` for those of a rank."""
    what_fills: str
    on: str
    """How a rank's memory of this kind is named after the rank."""
    fix: str


OWN = Place(
    "own_memory_bytes",
    "the node's memory",
    "",
    "Look for what outlives a step: a list of losses or outputs (keep loss.item(), or .detach() what you keep), a "
    "running sum of losses that still holds its graph, a cache without a limit.",
)
WORKERS = Place(
    "workers_memory_bytes",
    "the node's memory",
    "'s data-loader workers",
    "Look for what the data set keeps of the samples it has read (a cache in __getitem__, open files). "
    "persistent_workers=False frees it after every epoch; fewer workers keep less.",
)
DEVICE = Place(
    "device_memory_bytes",
    "its GPU's memory",
    "'s GPU",
    "Look for tensors that outlive a step: total += loss (use loss.item()), outputs in a list without .detach().cpu(), "
    "retain_graph=True, metrics that gather every batch.",
)
SHARED = Place(
    "shared_memory_used_bytes",
    "/dev/shm",
    "",
    "Look for batches that are kept after their step (a list of them, a queue nobody empties), and for files in "
    "/dev/shm that are not deleted.",
)
OF_RANKS = (OWN, WORKERS, DEVICE)


@dataclass
class NodeMemory:
    """Steady growth on one node by rank, and what is still free; None where it could not be read."""

    own: Mapping[int, Growth] = field(default_factory=dict)
    workers: Mapping[int, Growth] = field(default_factory=dict)
    devices: Mapping[int, Growth] = field(default_factory=dict)
    shared: Growth | None = None
    free_bytes: float | None = None
    free_shared_bytes: float | None = None
    free_device_bytes: Mapping[int, float] = field(default_factory=dict)
    first_epoch_ends_at: int | None = None
    """Step; None where it is over, or its length is not known. A data set may be cached until then."""


@dataclass(frozen=True)
class _Leak:
    full_s: float
    sentence: str
    places: Sequence[Place]


def leak_findings(memory: NodeMemory) -> list[Finding]:
    """Return one finding for everything that will fill up, the soonest first; none where nothing does for sure."""
    leaks = sorted(_leaks(memory), key=lambda leak: leak.full_s)
    if not leaks:
        return []
    fixes = dict.fromkeys(place.fix for leak in leaks for place in leak.places)
    evidence = " ".join(leak.sentence for leak in leaks[:MOST_NAMED])
    return [Finding(kind=KIND, evidence=evidence, meaning=MEANING, fix=" ".join([*fixes, UNTIL_THEN]))]


def _leaks(memory: NodeMemory) -> Iterator[_Leak]:
    growing = [
        (place, rank, growth)
        for place, ranks in ((OWN, memory.own), (WORKERS, memory.workers))
        for rank, growth in ranks.items()
    ]
    yield from _leak(growing, memory.free_bytes, memory)
    for rank, growth in memory.devices.items():
        yield from _leak([(DEVICE, rank, growth)], memory.free_device_bytes.get(rank), memory)
    if memory.shared is not None:
        yield from _leak([(SHARED, None, memory.shared)], memory.free_shared_bytes, memory)


def _leak(
    growing: Sequence[tuple[Place, int | None, Growth]], free_bytes: float | None, memory: NodeMemory
) -> Iterator[_Leak]:
    growths = [growth for _, _, growth in growing]
    if free_bytes is None or (full_s := seconds_until_full(growths, free_bytes)) is None:
        return
    if _may_level_off(growths, free_bytes, memory.first_epoch_ends_at):
        return
    fastest = sorted(growing, key=lambda entry: -entry[2].bytes_per_step)
    place, rank, first = fastest[0]
    name = "in /dev/shm" if rank is None else f"on rank {rank}{place.on}"
    others = as_list((f"rank {other}{kind.on}" for kind, other, _ in fastest[1:]), MOST_NAMED)
    together = sum(growth.bytes_per_step for growth in growths)
    also = f" (with {others} +{size(together, is_coarse=True)})" if others else ""
    sentence = (
        f"+{size(first.bytes_per_step, is_coarse=True)} a step {name}{also}, "
        f"{size(first.first.used_bytes, is_coarse=True)} at step {first.first.step} and "
        f"{size(first.last.used_bytes, is_coarse=True)} at step {first.last.step}: "
        f"{place.what_fills} is full in about {duration_words(full_s)}."
    )
    yield _Leak(full_s, sentence, [kind for kind, _, _ in fastest])


def _may_level_off(growths: Sequence[Growth], free_bytes: float, first_epoch_ends_at: int | None) -> bool:
    """Whether this may be a cache of the data set that fits: it is complete after the first epoch."""
    if first_epoch_ends_at is None:
        return False
    per_step = sum(growth.bytes_per_step for growth in growths)
    return (first_epoch_ends_at - growths[0].last.step) * per_step < free_bytes
