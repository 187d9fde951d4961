"""Decide from what is remembered of a node whether it, or one of its devices, is left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.health.xids import is_hardware
from domain.messages import Reason
from domain.views import Quarantine

STRIKES = 2
"""Failed attempts that put hardware in quarantine."""
REMEMBERED_S = 7 * 86_400.0
"""Older strikes do not count."""
NODE = ""
"""Means the entire node where the id of a device is expected."""


class IncidentKind(StrEnum):
    """What is remembered of a device or a node."""

    FAILED = "failed attempt"
    """An attempt failed, and its first failing rank was there."""
    LOST = "lost contact"
    """An attempt failed because its node was silent."""
    XID = "Xid"
    """The NVIDIA driver reported an error; `number` says which."""
    MEMORY = "memory errors"
    """The memory had errors that were not corrected; `number` of them."""
    THROTTLED = "throttled"
    """The clocks were lowered for an unwanted reason."""
    PREFLIGHT = "preflight"
    """It failed a check before a start."""
    SLOW = "slow rank"
    """Other ranks waited for the rank there."""
    WRONG = "failed test"
    """A test found a wrong result."""
    PASSED = "passed test"
    RELEASED = "released"
    """A person ended its quarantine."""


CLEARING = frozenset({IncidentKind.PASSED, IncidentKind.RELEASED})
"""What happened before no longer counts."""


@dataclass(frozen=True)
class Incident:
    """Something that is remembered of a device, or of a node."""

    kind: IncidentKind
    at: float
    text: str
    device: str = NODE
    began_at: float | None = None
    """When the attempt was placed there."""
    number: int | None = None
    is_strike: bool = False
    """Whether a failed attempt is the hardware's fault."""


def quarantines(incidents: Sequence[Incident], trusted: Mapping[str, float], now: float) -> dict[str, Quarantine]:
    """The devices to leave out by id, and NODE for the whole node; `incidents`: oldest first.

    `trusted`: when an attempt last succeeded on each device, and on the node (NODE); it clears strikes before, but no
    error that the hardware itself reported."""
    left_out: dict[str, Quarantine] = {}
    for device in dict.fromkeys(incident.device for incident in incidents if incident.device):
        of_device = _since_cleared([one for one in incidents if one.device in (device, NODE)], device)
        if quarantine := _judge(device, of_device, trusted.get(device, 0.0), now):
            left_out[device] = quarantine
    of_node = _since_cleared(incidents, NODE)
    if quarantine := _judge(NODE, of_node, trusted.get(NODE, 0.0), now) or _by_devices(left_out):
        left_out[NODE] = quarantine
    return left_out


def blamed(reason: str | None, error: Mapping[str, Any]) -> str | None:
    """device or node, where a failed attempt shows that the hardware was at fault; None for all else.

    An exception, a crash, a signal or a lack of memory may be the program's own on any node, and never counts."""
    fault = error.get("fault")
    return fault if reason != Reason.OUT_OF_MEMORY and fault in ("device", "node") else None


def may_be_hardware(reason: str | None, error: Mapping[str, Any]) -> bool:
    """Whether the next attempt better avoids the device, if another is free: it is not certain whose fault it was."""
    if blamed(reason, error):
        return True
    is_cuda = "CUDA error" in str(error.get("exception") or "")
    return is_cuda or reason in (Reason.KILLED, Reason.EXIT_CODE, Reason.TIMED_OUT)


def silence_counts(lost: int, in_contact: int) -> bool:
    """Whether silence speaks against nodes: not where most are silent, as when the dashboard's network fails."""
    return 0 < lost <= in_contact


def _since_cleared(incidents: Sequence[Incident], device: str) -> list[Incident]:
    """The incidents of a device (NODE: of the node as a whole) after the last one that clears it."""
    cleared = [at for at, one in enumerate(incidents) if one.kind in CLEARING and one.device in (device, NODE)]
    later = incidents[cleared[-1] + 1 :] if cleared else incidents
    return [one for one in later if one.device == device]


def _judge(device: str, incidents: Sequence[Incident], trusted_at: float, now: float) -> Quarantine | None:
    for one in incidents:
        if one.kind == IncidentKind.WRONG or (
            one.kind == IncidentKind.XID and one.number is not None and is_hardware(one.number)
        ):
            return Quarantine(one.at, one.text)
    strikes: list[Incident] = []
    for one in incidents:
        # Attempts that ran there at the same time and failed together are one strike.
        is_separate = not strikes or (one.began_at is not None and one.began_at >= strikes[-1].at)
        if one.is_strike and one.at > max(trusted_at, now - REMEMBERED_S) and is_separate:
            strikes.append(one)
    if len(strikes) < STRIKES:
        return None
    subject = "this device" if device else "this node"
    return Quarantine(
        strikes[STRIKES - 1].at, f"{len(strikes)} attempts failed because of {subject}; the last: {strikes[-1].text}"
    )


def _by_devices(left_out: Mapping[str, Quarantine]) -> Quarantine | None:
    """A node of which two devices are left out."""
    if len(left_out) < STRIKES:
        return None
    first, *_, last = sorted(left_out.values(), key=lambda one: one.since)
    return Quarantine(last.since, f"{len(left_out)} of its devices are in quarantine: {first.why}")
