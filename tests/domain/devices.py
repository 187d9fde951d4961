"""Devices with the memory that a test gives them."""

from __future__ import annotations

from domain.device_memory import DeviceMemory, MemoryShares

GIB = 2**30


def device(other: int = 40, requested: int = 8, unused: int = 0, **changes: object) -> DeviceMemory:
    """A device of 80 GiB with 16 GiB of parameters, gradients and Adam's moments."""
    shares = MemoryShares(parameters=4 * GIB, gradients=4 * GIB, optimizer=8 * GIB, other=other * GIB)
    allocated = shares.fixed + shares.other
    reserved = allocated + unused * GIB
    values = {
        "rank": 0, "requested_bytes": requested * GIB, "free_bytes": 80 * GIB - reserved, "total_bytes": 80 * GIB,
        "allocated_bytes": allocated, "reserved_bytes": reserved, "shares": shares,
    }  # fmt: skip
    return DeviceMemory.model_validate(values | changes)
