"""Device memory at a failed allocation: what filled it, and the batch that would fit. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.requests.bounds import Count, Integer, Moment, Rank
from domain.text.formats import size

USABLE_SHARE = 0.95
"""Of what torch could have had: blocks do not fill it without gaps."""
FRAGMENTED_SHARE = 0.05
"""Unused memory that is worth a word, as a share of the device."""


class AllocatingLine(BaseModel):
    """Live blocks that one line of the user's code has allocated; without a file, the backward pass or native code."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["parameters", "gradients", "optimizer", "other"] = "other"
    file: Annotated[str, Field(max_length=4096)] = ""
    line: Integer = 0
    function: Annotated[str, Field(max_length=1000)] = ""
    bytes: Count
    count: Count
    largest_bytes: Count


class MemoryShares(BaseModel):
    """Bytes in use by what they are for."""

    model_config = ConfigDict(frozen=True)

    parameters: Count = 0
    gradients: Count = 0
    optimizer: Count = 0
    other: Count = 0
    """Activations, buffers, and everything that no optimizer refers to."""

    @property
    def fixed(self) -> int:
        """Bytes that do not depend on the batch."""
        return self.parameters + self.gradients + self.optimizer


class DeviceMemory(BaseModel):
    """A rank's device when an allocation failed, as the probe summarised torch's snapshot of it."""

    model_config = ConfigDict(frozen=True)

    rank: Rank
    device: Integer = 0
    at: Moment = 0.0
    step: Integer = 0
    batch_size: Annotated[Count, Field(gt=0)] | None = None
    """Of the rank's data loader; None where it has none that is known."""
    requested_bytes: Count
    free_bytes: Count
    total_bytes: Count
    allocated_bytes: Count
    reserved_bytes: Count
    largest_unused_bytes: Count = 0
    shares: MemoryShares = MemoryShares()
    missing_bytes: Count = 0
    """Gradients and optimizer state that did not exist yet."""
    lines: Annotated[list[AllocatingLine], Field(max_length=20)] = []

    @property
    def unused_bytes(self) -> int:
        """Bytes that torch has reserved between tensors."""
        return max(0, self.reserved_bytes - self.allocated_bytes)

    @property
    def is_fragmented(self) -> bool:
        """Whether the request would have fitted into what is unused, in pieces too small for it."""
        is_much = self.unused_bytes > FRAGMENTED_SHARE * self.total_bytes
        return is_much and self.unused_bytes + self.free_bytes >= self.requested_bytes

    @property
    def usable_bytes(self) -> float:
        """Bytes that torch could have on this device, beside what others use."""
        return USABLE_SHARE * (self.free_bytes + self.reserved_bytes)


def fitting_share(memory: DeviceMemory) -> float | None:
    """Estimate which share of the batch fits at most, 0 where not even the model does; None where nothing shows it.

    Parameters, gradients and optimizer state stay, all else in use and the request are taken to grow with the
    batch. A step that failed early had not yet allocated everything, so less may fit.
    """
    activations = memory.shares.other + memory.requested_bytes
    if not memory.shares.parameters or not activations:
        return None
    return max(0.0, (memory.usable_bytes - memory.shares.fixed - memory.missing_bytes) / activations)


# Device memory at a failed allocation in words: what filled it, and how the fitting batch was estimated. Pure.

KINDS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "other": "activations and buffers",
}


def in_words(memory: DeviceMemory) -> str:
    """64 MiB requested, 12 MiB of 79 GiB free on GPU 0, 3.1 GiB unused between tensors; 61 % activations and …"""
    text = (
        f"{size(memory.requested_bytes)} requested, {size(memory.free_bytes)} of {size(memory.total_bytes)} free "
        f"on GPU {memory.device}"
    )
    if memory.unused_bytes > FRAGMENTED_SHARE * memory.total_bytes:
        text += f", {size(memory.unused_bytes)} unused between tensors"
    shares = [f"{share} {name}" for name, share in shares_in_percent(memory).items()]
    return f"{text}; in use: {', '.join(shares)}" if shares else text


def shares_in_percent(memory: DeviceMemory) -> dict[str, str]:
    """Return name -> 61 %, the largest first, without what is less than one percent."""
    by_kind = memory.shares.model_dump()
    largest = sorted(KINDS, key=lambda kind: -by_kind[kind])
    total = sum(by_kind.values())
    percent = {KINDS[kind]: round(100 * by_kind[kind] / total) for kind in largest} if total else {}
    return {name: f"{value} %" for name, value in percent.items() if value}


def how_counted(memory: DeviceMemory) -> str:
    """Return in a sentence how the fitting batch was estimated."""
    fixed, growing = memory.shares.fixed + memory.missing_bytes, memory.shares.other + memory.requested_bytes
    return (
        f"The batch that fits is an estimate: {size(fixed)} of parameters, gradients and optimizer state stay, "
        f"{size(growing)} in use or requested grow with the batch, and {size(memory.usable_bytes)} can be used "
        f"(95 % of the device without what others hold)."
    )
