"""Faults of this node's devices that were read lately, sent with every load sample; the server stores each once."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Mapping

from domain.messages import DeviceFault
from worker.hardware.gpus import THROTTLING, KernelFaults
from worker.hardware.readings import Readings

MOST = 50
SENT_FOR_S = 600.0
"""Long enough for a server that is being restarted."""
_XID = re.compile(r"Xid (\d+)")
_MEMORY = ("uncorrected memory errors", "uncorrected memory error")


class RecentFaults:
    """The newest faults; thread-safe."""

    def __init__(self) -> None:
        self._faults: deque[DeviceFault] = deque(maxlen=MOST)
        self._lock = threading.Lock()

    def add(self, faults: list[DeviceFault]) -> None:
        """Add faults that were just read."""
        with self._lock:
            self._faults.extend(faults)

    def since(self, now: float) -> list[DeviceFault]:
        """The faults to be sent at a time (by the node's clock)."""
        with self._lock:
            return [fault for fault in self._faults if 0 <= now - fault.at < SENT_FOR_S]


def faults_in(
    gpus: Mapping[str, Readings], kernel: KernelFaults, ids: Mapping[str, str], at: float
) -> list[DeviceFault]:
    """The faults in one sample; `ids`: GPU id by the addresses on the bus that the kernel logged."""
    faults = [DeviceFault(device=ids[bus], kind="Xid", number=xid, at=at) for bus, xid in kernel.xids if ids.get(bus)]
    for gpu_id, readings in gpus.items():
        faults += [fault for text, number in readings.events.items() if (fault := _fault(gpu_id, text, number, at))]
    faults += [fault for text, number in kernel.events.items() if (fault := _fault("", text, number, at))]
    return list({(fault.device, fault.kind, fault.number): fault for fault in faults}.values())


def _fault(device: str, text: str, number: float, at: float) -> DeviceFault | None:
    if match := _XID.fullmatch(text):
        return DeviceFault(device=device, kind="Xid", number=int(match[1]), at=at)
    if text in _MEMORY:
        return DeviceFault(device=device, kind="memory errors", number=int(number), at=at)
    if text in THROTTLING.values():
        return DeviceFault(device=device, kind="throttled", text=text, at=at)
    return None
