"""The gradient reduction of DistributedDataParallel in words: buckets, overlap with backward, bandwidth. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from domain.preflight.judgement import rate
from domain.text.formats import milliseconds, plural, size

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


def sentence(reduction: Reduction, world_size: int, link_bytes_per_s: float | None) -> str:
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
    measured = (
        f"; preflight measured {rate(link_bytes_per_s)} on the slowest link" if link_bytes_per_s else ""
    )
    return f"The all-reduce reached at least {rate(reached)} on each link{measured}."
