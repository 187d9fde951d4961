"""Find memory that grows with every step, from samples. Pure.

Only growth that is as steady at the end as at the beginning counts: buffers that fill, caches that level off and
garbage that is collected now and then do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from statistics import median

from domain.messages import Finding
from domain.text.formats import as_list, duration_words, size

WARM_UP_STEPS = 10
WARM_UP_S = 30.0
"""Libraries, workers and buffers take their memory in these."""
MOST_SAMPLES = 512
BUCKETS = 8
FEWEST_SAMPLES = 3 * BUCKETS
FEWEST_STEPS = 2 * BUCKETS
LEAST_GROWTH_BYTES = 64 * 2**20
LARGEST_DEVIATION = 0.1
"""Of the lowest values from a straight line, as a share of the growth."""
STEADY_RATES = (0.75, 1.5)
"""Range of the rate in the last third over the rate in the first."""
FORECAST_FACTOR = 20
"""A forecast reaches at most so many times as far as the samples it is made from."""


@dataclass(frozen=True)
class MemorySample:
    """Bytes in use at a step and at a time in seconds."""

    step: int
    at: float
    used_bytes: float


@dataclass(frozen=True)
class Growth:
    """Steady growth of memory."""

    bytes_per_step: float
    bytes_per_s: float
    first: MemorySample
    last: MemorySample


class MemorySamples:
    """Samples of one kind of memory after its warm-up; the older they are, the fewer are kept."""

    def __init__(self) -> None:
        self._begin: MemorySample | None = None
        self._samples: list[MemorySample] = []

    def add(self, sample: MemorySample) -> None:
        """Add a sample; those before the first step and of the warm-up do not count."""
        if sample.step <= 0:
            return
        self._begin = self._begin or sample
        if sample.step - self._begin.step < WARM_UP_STEPS or sample.at - self._begin.at < WARM_UP_S:
            return
        self._samples.append(sample)
        if len(self._samples) > MOST_SAMPLES:
            self._samples = [_lowest(self._samples[at : at + 2]) for at in range(0, len(self._samples), 2)]

    def growth(self) -> Growth | None:
        """Return the growth over all samples; None where it is not steady or too small to be sure."""
        return steady_growth(self._samples)


def steady_growth(samples: Sequence[MemorySample]) -> Growth | None:
    """Return the steady growth of the lowest values; None where there is none, or too little to be sure."""
    if len(samples) < FEWEST_SAMPLES or samples[-1].step - samples[0].step < FEWEST_STEPS:
        return None
    bounds = [len(samples) * number // BUCKETS for number in range(BUCKETS + 1)]
    lowest = [_lowest(samples[begin:end]) for begin, end in pairwise(bounds)]
    grown = lowest[-1].used_bytes - lowest[0].used_bytes
    is_rising = all(after.used_bytes > before.used_bytes for before, after in pairwise(lowest))
    if not is_rising or grown < LEAST_GROWTH_BYTES or not _is_steady(lowest, grown):
        return None
    per_s = grown / (lowest[-1].at - lowest[0].at)
    return Growth(_rate(lowest), per_s, lowest[0], lowest[-1])


def seconds_until_full(growths: Sequence[Growth], free_bytes: float) -> float | None:
    """Return after how many seconds all growths together fill `free_bytes`; None where that is too far ahead."""
    total = sum(growth.bytes_per_s for growth in growths)
    if total <= 0:
        return None
    remaining_s = max(0.0, free_bytes) / total
    observed_s = max(growth.last.at - growth.first.at for growth in growths)
    return remaining_s if remaining_s <= FORECAST_FACTOR * observed_s else None


def _is_steady(lowest: Sequence[MemorySample], grown: float) -> bool:
    """Whether the values lie on a line, and the last third rises as fast as the first."""
    if any(after.step == before.step for before, after in pairwise(lowest)):
        return False
    rate, third = _rate(lowest), max(2, len(lowest) // 3 + 1)
    offset = median(sample.used_bytes - rate * sample.step for sample in lowest)
    deviation = max(abs(sample.used_bytes - rate * sample.step - offset) for sample in lowest)
    slowest, fastest = STEADY_RATES
    return (
        deviation <= LARGEST_DEVIATION * grown and slowest <= _rate(lowest[-third:]) / _rate(lowest[:third]) <= fastest
    )


def _rate(samples: Sequence[MemorySample]) -> float:
    """Bytes a step: the median over all pairs of samples (Theil and Sen)."""
    return median(
        (after.used_bytes - before.used_bytes) / (after.step - before.step)
        for before, after in combinations(samples, 2)
    )


def _lowest(samples: Sequence[MemorySample]) -> MemorySample:
    return min(samples, key=lambda sample: sample.used_bytes)


# Name the ranks whose memory grows with every step, and when it is full. Pure.

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
