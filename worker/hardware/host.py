"""CPU, memory, disk, network and InfiniBand of this node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from worker.hardware.readings import Counters, Readings
from worker.node import control_groups

SHARED_MEMORY = Path("/dev/shm")
INFINIBAND_WORD_BYTES = 4
"""Unit of the data counters of an InfiniBand port."""
INFINIBAND_FAULTS = ("link_downed", "link_error_recovery", "port_rcv_errors", "symbol_error")


class Host:
    """Reads the node's own figures; a rate is the mean since the previous reading."""

    def __init__(self, data_dir: Path, sysfs: Path = Path("/sys"), proc: Path = Path("/proc")) -> None:
        self._data_dir, self._sysfs, self._proc = data_dir, sysfs, proc
        self._rates, self._faults = Counters(), Counters()

    def read(self, at: float) -> Readings:
        """Return what can be read; `at` is in seconds of a clock that never goes back."""
        readings = Readings()
        with suppress(OSError, psutil.Error):
            memory = psutil.virtual_memory()
            readings.add("memory_used_bytes", memory.total - memory.available)
            limits = (memory.available, control_groups.free_memory_bytes(self._proc))
            readings.add("memory_available_bytes", min(limit for limit in limits if limit is not None))
        with suppress(OSError):
            readings.add("disk_used_bytes", shutil.disk_usage(self._data_dir).used)
        with suppress(OSError):
            shared = shutil.disk_usage(SHARED_MEMORY)
            readings.add("shared_memory_used_bytes", shared.used)
            readings.add("shared_memory_free_bytes", shared.free)
        rates = self._rates.rates(at, dict(self._counters()))
        if (busy := rates.pop("cpu_busy_s", None)) is not None:
            readings.add("cpu_percent", 100 * busy / (psutil.cpu_count() or 1))
        readings.values.update(rates)
        self._add_infiniband_faults(readings)
        return readings

    def _counters(self) -> Iterator[tuple[str, float]]:
        """Yield the counters whose growth per second is a reading."""
        with suppress(OSError, psutil.Error):
            times = psutil.cpu_times()
            yield "cpu_busy_s", times.user + times.system + times.nice + times.irq + times.softirq
        with suppress(OSError, psutil.Error, RuntimeError):
            if (disks := psutil.disk_io_counters()) is not None:
                yield "disk_read_bytes_per_s", disks.read_bytes
                yield "disk_written_bytes_per_s", disks.write_bytes
        with suppress(OSError, psutil.Error):
            cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != "lo"]
            yield "network_received_bytes_per_s", sum(card.bytes_recv for card in cards)
            yield "network_sent_bytes_per_s", sum(card.bytes_sent for card in cards)
        for port, counters in self._infiniband():
            for name, counter in (("received", "port_rcv_data"), ("sent", "port_xmit_data")):
                if (words := _number(counters / counter)) is not None:
                    yield f"{port}/{name}_bytes_per_s", words * INFINIBAND_WORD_BYTES

    def _infiniband(self) -> Iterator[tuple[str, Path]]:
        """Yield (mlx5_0:1, the folder of its counters) of each port."""
        for counters in sorted(self._sysfs.glob("class/infiniband/*/ports/*/counters")):
            port = counters.parent
            yield f"{port.parent.parent.name}:{port.name}", counters

    def _add_infiniband_faults(self, readings: Readings) -> None:
        for port, counters in self._infiniband():
            for fault in INFINIBAND_FAULTS:
                count = _number(counters / fault)
                growth = 0.0 if count is None else self._faults.growth(f"{port}/{fault}", count)
                if growth:
                    readings.events[f"{port}: {fault.replace('_', ' ')}"] = growth


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
