"""How well a training uses its devices, in words: the gradient reduction of DistributedDataParallel, and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from domain.preflight import rate
from domain.text.formats import milliseconds, number, plural, size


@dataclass(frozen=True)
class Reduction:
    """How a run averages its gradients, as DistributedDataParallel counts it on rank 0."""

    buckets: int
    gradient_bytes: float
    largest_bytes: float
    rebuilt: bool
    """Whether the buckets follow the order in which gradients were ready in the first pass."""
    unused_bytes: float
    static_graph: bool
    backward_s: float | None = None
    communication_s: float | None = None
    """From the first bucket's start to the last one's end."""
    overlap_s: float | None = None
    """The part of the communication during the backward pass."""

    def bus_bytes_per_s(self, world_size: int) -> float | None:
        """Return the bandwidth that the all-reduce reached on each link, at least: buckets may have waited meanwhile.

        A ring sends 2 (n - 1) / n of the bytes over each link (nccl-tests, `PERFORMANCE.md`: bus bandwidth)."""
        if not self.communication_s or world_size < 2:
            return None
        return self.gradient_bytes * 2 * (world_size - 1) / world_size / self.communication_s


TAG = "ddp/"
FIGURES = (
    "buckets",
    "gradient_bytes",
    "largest_bytes",
    "rebuilt",
    "unused_bytes",
    "static_graph",
    "backward_s",
    "communication_s",
    "overlap_s",
)
"""Names of the points, after `TAG`; the first six are facts, the others means over the passes that torch samples."""


def reduction_sentence(reduction: Reduction, world_size: int, link_bytes_per_s: float | None) -> str:
    """Return how gradients are averaged in each step; `link_bytes_per_s`: the slowest link that preflight measured."""
    parts = [_buckets(reduction), _overlap(reduction), _bandwidth(reduction, world_size, link_bytes_per_s)]
    if reduction.unused_bytes:
        parts.append(f"Parameters of {size(reduction.unused_bytes)} got no gradient.")
    if reduction.static_graph:
        parts.append("static_graph is on.")
    return " ".join(filter(None, parts))


def _buckets(reduction: Reduction) -> str:
    order = (
        "in the order in which they are ready"
        if reduction.rebuilt
        else "in the order of the parameters, as its buckets were not rebuilt"
    )
    return (
        f"DistributedDataParallel averages {size(reduction.gradient_bytes)} of gradients in every step, in "
        f"{plural(reduction.buckets, 'bucket')} of at most {size(reduction.largest_bytes)}, {order}."
    )


def _overlap(reduction: Reduction) -> str:
    if not reduction.communication_s or reduction.overlap_s is None or reduction.backward_s is None:
        return ""
    share = min(1.0, reduction.overlap_s / reduction.communication_s)
    return (
        f"{share:.0%} of its {milliseconds(reduction.communication_s)} of communication overlaps with the backward "
        f"pass, which computes for {milliseconds(reduction.backward_s)}."
    )


def _bandwidth(reduction: Reduction, world_size: int, link_bytes_per_s: float | None) -> str:
    reached = reduction.bus_bytes_per_s(world_size)
    if reached is None:
        return ""
    measured = f"; preflight measured {rate(link_bytes_per_s)} on the slowest link" if link_bytes_per_s else ""
    return f"The all-reduce reached at least {rate(reached)} on each link{measured}."


# Estimates of a training's arithmetic: TFLOP/s and the share of what its devices can do (MFU). Pure.

PARAMETERS = "model/parameters"
TOKENS = "tokens_per_s"
FLOP_PER_PARAMETER_AND_TOKEN = 6
"""Forward 2, backward 4; attention over long contexts comes on top (Kaplan et al. 2020, arXiv:2001.08361, 2.1)."""
PEAK_TFLOP_PER_S = {
    "B200": 2250.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "RTX 4090": 165.2,
    "RTX 3090": 71.0,
}
"""Dense bfloat16 with float32 sums, from NVIDIA's data sheets; the first name that the device's name contains."""


@dataclass(frozen=True)
class Arithmetic:
    """What an estimate is counted from."""

    parameters: float
    tokens_per_s: float
    """Of all ranks."""
    ranks: int
    device: str
    """Its name; empty on CPUs."""

    @property
    def tflop_per_s(self) -> float:
        """Estimated TFLOP/s of each rank."""
        return FLOP_PER_PARAMETER_AND_TOKEN * self.parameters * self.tokens_per_s / self.ranks / 1e12

    @property
    def peak_tflop_per_s(self) -> float | None:
        """The device's peak in bfloat16; None where it is unknown."""
        words = self.device.replace("-", " ").split()
        return next((peak for name, peak in PEAK_TFLOP_PER_S.items() if set(name.split()) <= set(words)), None)


def arithmetic_sentence(arithmetic: Arithmetic) -> str:
    """Return the estimates, and how they were counted."""
    counted = (
        f"{FLOP_PER_PARAMETER_AND_TOKEN} x {number(arithmetic.parameters)} parameters x "
        f"{number(arithmetic.tokens_per_s)} tokens/s / {arithmetic.ranks}"
    )
    estimate = f"About {number(arithmetic.tflop_per_s)} TFLOP/s for each rank, an estimate ({counted})"
    peak = arithmetic.peak_tflop_per_s
    if peak is None:
        return f"{estimate}."
    share = arithmetic.tflop_per_s / peak
    return f"{estimate}: {share:.0%} of the {peak:g} that {arithmetic.device} can do in bfloat16 (MFU)."
