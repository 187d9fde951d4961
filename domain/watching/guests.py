"""Guest nodes: the machines of watched runs, which get nothing placed on them and leave with their run."""

from __future__ import annotations

PREFIX = "watched:"
"""Of their pools; Slurm's nodes have `slurm:`."""


def pool_of(fence: int) -> str:
    """The pool of the guests of one attempt."""
    return f"{PREFIX}{fence}"


def is_guest(pool: str) -> bool:
    """Whether a node of this pool is a guest."""
    return pool.startswith(PREFIX)
