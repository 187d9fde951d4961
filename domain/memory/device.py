"""Device memory at a failed allocation in words: what filled it, and how the fitting batch was estimated. Pure."""

from __future__ import annotations

from domain.device_memory import FRAGMENTED_SHARE, DeviceMemory
from domain.text.formats import size

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
