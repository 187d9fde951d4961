"""Waits, after an attempt, until its GPUs are free, and names what holds those that are not."""

from __future__ import annotations

from collections.abc import Sequence

from domain.health.holders import in_words
from domain.messages import HeldDevice
from worker.node.hardware import GPUS, GpuReader

LIMIT_S = 5.0
"""The driver frees the memory of a process that has ended within moments."""


class DeviceRelease:
    """The GPUs of one attempt whose processes have ended; asked in every step until it answers."""

    def __init__(self, devices: Sequence[str], gpus: GpuReader | None = None, limit_s: float = LIMIT_S) -> None:
        self._devices, self._gpus, self._limit_s = devices, gpus or GPUS, limit_s
        self._began_at: float | None = None

    def held(self, now: float) -> list[HeldDevice] | None:
        """The GPUs that something still holds; None while it is worth waiting for them."""
        samples = {sample["id"]: sample for sample in self._gpus.samples(())} if self._devices else {}
        held = [
            HeldDevice(device=device, holder=in_words(samples[device].get("holders", ()))[:1000])
            for device in self._devices
            if samples.get(device, {}).get("foreign")
        ]
        self._began_at = now if self._began_at is None else self._began_at
        return held if not held or now - self._began_at >= self._limit_s else None
