"""The memory and the tests of a node, as pages and the API show them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from domain.health.testing import DeviceResult


@dataclass(frozen=True)
class IncidentView:
    """Something that is remembered of a node or a device."""

    at: float
    kind: str
    """failed attempt, lost contact, Xid, … (`domain.health.quarantine.IncidentKind`)."""
    device: str | None
    """None: the whole node."""
    text: str
    is_strike: bool
    """Whether it counts against the hardware."""
    run_id: str | None
    attempt: int | None


@dataclass(frozen=True)
class HardwareTestView:
    """A test of a node's devices."""

    id: int
    node: str
    devices: list[str]
    asked_at: float
    ended_at: float | None
    verdict: str | None
    """passed, failed, unknown; None while it runs."""
    results: list[DeviceResult]
    by: str | None = None
    """The person who asked for it."""
