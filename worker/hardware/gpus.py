"""GPUs by NVML or /sys, with the errors that the kernel logs of them: load, memory, heat, power, clocks, links."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from domain.text.formats import KIB, MIB
from worker.hardware.readings import Counters, Readings
from worker.node.hardware import GpuReader, text


class Gpus:
    """Reads the GPUs of this node. What a GPU or driver does not report is left out."""

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader
        self._rates, self._errors = Counters(), Counters()
        self._throttled: dict[str, int] = {}
        self._gpm_samples: dict[str, Any] = {}
        self._events: Any = None
        self._ids_by_bus: dict[tuple[int, ...], str] = {}

    def read(self, at: float, *, only_faults: bool = False) -> dict[str, Readings]:
        """Return GPU id -> its readings, and process memory as `process/PID/memory_bytes`.

        `only_faults`: what tells of none is left out, because some of it takes tens of milliseconds."""
        look = self._read_faults if only_faults else partial(self._read, at=at)
        readings = self._reader.read(look)
        none: list[tuple[str, int]] = []
        for gpu_id, xid in self._reader.query(self._xids, none) if readings else none:
            if gpu_id in readings:
                readings[gpu_id].events[f"Xid {xid}"] = xid
        return readings or {gpu_id: self._of_amd(gpu_id, read) for gpu_id, read in self._reader.read_amd().items()}

    def _of_amd(self, gpu_id: str, read: dict[str, float]) -> Readings:
        readings = Readings(read)
        self._add_memory_errors(gpu_id, readings)
        return readings

    def id_at(self, bus: str) -> str:
        """The id of the GPU at an address on the PCI bus as the kernel writes it; empty if there is none."""
        return self._ids_by_bus.get(_bus(bus), "")

    def _read_faults(self, nvml: ModuleType | Any, gpu_id: str, handle: Any) -> Readings:
        readings = self._read_levels(nvml, gpu_id, handle, FAULTS)
        self._add_events(nvml, gpu_id, readings)
        return readings

    def _read_levels(
        self, nvml: ModuleType | Any, gpu_id: str, handle: Any, names: Collection[str] | None = None
    ) -> Readings:
        """Read the levels with these names (None: all), and note where on the bus the GPU is."""
        readings = Readings()
        with suppress(Exception):
            self._ids_by_bus[_bus(text(nvml.nvmlDeviceGetPciInfo(handle).busId))] = gpu_id
        for name, value in _levels(nvml, handle):
            with suppress(Exception):
                if names is None or name in names:
                    readings.add(name, value())
        return readings

    def _read(self, nvml: ModuleType | Any, gpu_id: str, handle: Any, at: float) -> Readings:
        readings = self._read_levels(nvml, gpu_id, handle)
        with suppress(Exception):
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                readings.add(f"process/{process.pid}/memory_bytes", process.usedGpuMemory)
        with suppress(Exception):
            readings.values.update(self._gpm(nvml, gpu_id, handle))
        if "pcie_sent_bytes_per_s" not in readings.values:
            with suppress(Exception):
                readings.values.update(self._links(nvml, gpu_id, handle, at))
        self._add_events(nvml, gpu_id, readings)
        return readings

    def _gpm(self, nvml: ModuleType | Any, gpu_id: str, handle: Any) -> dict[str, float]:
        """Return the driver's own measurements since the previous sample; empty at the first."""
        if gpu_id not in self._gpm_samples and not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return {}
        sample = nvml.nvmlGpmSampleGet(handle, nvml.nvmlGpmSampleAlloc())
        previous, self._gpm_samples[gpu_id] = self._gpm_samples.get(gpu_id), sample
        if previous is None:
            return {}
        try:
            comparison = nvml.c_nvmlGpmMetricsGet_t()
            comparison.version, comparison.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(GPM_METRICS)
            comparison.sample1, comparison.sample2 = previous, sample
            for position, metric in enumerate(GPM_METRICS):
                comparison.metrics[position].metricId = getattr(nvml, metric)
            nvml.nvmlGpmMetricsGet(comparison)
        finally:
            nvml.nvmlGpmSampleFree(previous)
        return {
            name: comparison.metrics[position].value * unit
            for position, (name, unit) in enumerate(GPM_METRICS.values())
            if comparison.metrics[position].nvmlReturn == 0
        }

    def _links(self, nvml: ModuleType | Any, gpu_id: str, handle: Any, at: float) -> dict[str, float]:
        """Return the traffic of PCIe, as the driver measures it in 20 ms, and of NVLink by its counters."""
        traffic: dict[str, float] = {}
        with suppress(Exception):
            for name, direction in (
                ("received", nvml.NVML_PCIE_UTIL_RX_BYTES),
                ("sent", nvml.NVML_PCIE_UTIL_TX_BYTES),
            ):
                kib = nvml.nvmlDeviceGetPcieThroughput(handle, direction)
                traffic[f"pcie_{name}_bytes_per_s"] = kib * KIB
        with suppress(Exception):
            fields = (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
            answers = nvml.nvmlDeviceGetFieldValues(handle, [(field, ALL_LINKS) for field in fields])
            counters = {
                f"{gpu_id} {name}": answer.value.ullVal * KIB
                for name, answer in zip(("received", "sent"), answers, strict=True)
                if answer.nvmlReturn == 0
            }
            for name, rate in self._rates.rates(at, counters).items():
                traffic[f"nvlink_{name.rpartition(' ')[2]}_bytes_per_s"] = rate
        return traffic

    def _add_events(self, nvml: ModuleType | Any, gpu_id: str, readings: Readings) -> None:
        """Add new uncorrected memory errors, and the reasons for which the clocks have just been lowered."""
        self._add_memory_errors(gpu_id, readings)
        reasons = int(readings.values.get("throttle_reasons", 0))
        new_reasons = reasons & ~self._throttled.get(gpu_id, 0)
        self._throttled[gpu_id] = reasons
        for constant, sentence in THROTTLING.items():
            if new_reasons & getattr(nvml, constant, 0):
                readings.events[sentence] = float(getattr(nvml, constant))

    def _add_memory_errors(self, gpu_id: str, readings: Readings) -> None:
        errors = readings.values.get("ecc_uncorrected_errors")
        if errors is not None and (growth := self._errors.growth(gpu_id, errors)):
            readings.events["uncorrected memory errors"] = growth

    def _xids(self) -> list[tuple[str, int]]:
        """Return (GPU id, Xid) of each critical error since the last call."""
        nvml, xids = self._reader.nvml, []
        with suppress(Exception):  # a driver without events, or NVMLError_Timeout: there are no more
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for _, handle in self._reader.handles_by_id():
                    with suppress(Exception):
                        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            while True:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                xids.append((text(nvml.nvmlDeviceGetUUID(event.device)), int(event.eventData)))
        return xids


ALL_LINKS = 0xFFFFFFFF
FAULTS = frozenset({"throttle_reasons", "ecc_uncorrected_errors"})
"""The levels from which faults are reported."""
THROTTLING = {
    "nvmlClocksEventReasonSwThermalSlowdown": "slowed down by its temperature",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "slowed down by its temperature (hardware)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "slowed down by the power supply",
}
"""Reasons for low clocks that nobody wants; a power cap is the usual one under load."""
GPM_METRICS = {
    "NVML_GPM_METRIC_SM_UTIL": ("sm_activity_percent", 1),
    "NVML_GPM_METRIC_ANY_TENSOR_UTIL": ("tensor_activity_percent", 1),
    "NVML_GPM_METRIC_DRAM_BW_UTIL": ("memory_bandwidth_percent", 1),
    "NVML_GPM_METRIC_PCIE_RX_PER_SEC": ("pcie_received_bytes_per_s", MIB),
    "NVML_GPM_METRIC_PCIE_TX_PER_SEC": ("pcie_sent_bytes_per_s", MIB),
    "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC": ("nvlink_received_bytes_per_s", MIB),
    "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC": ("nvlink_sent_bytes_per_s", MIB),
}
"""Metrics that the driver computes between two of its own samples, on Hopper and newer: (name, unit)."""


def _levels(nvml: ModuleType | Any, handle: Any) -> Iterable[tuple[str, Callable[[], float]]]:
    """The values that one call of NVML returns, by name; each call may fail."""
    return (
        ("utilisation_percent", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        ("memory_used_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
        ("temperature_c", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        ("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        ("energy_j", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000),
        ("sm_clock_hz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
        ("memory_clock_hz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6),
        ("throttle_reasons", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        ("ecc_corrected_errors", lambda: _ecc_errors(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)),
        (
            "ecc_uncorrected_errors",
            lambda: _ecc_errors(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        ),
    )


def _ecc_errors(nvml: ModuleType | Any, handle: Any, kind: int) -> float:
    return float(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC))


def _bus(address: str) -> tuple[int, ...]:
    """Domain, bus and device of 0000:3b:00 or 00000000:3B:00.0."""
    return tuple(int(part, 16) for part in address.partition(".")[0].split(":"))


# Faults of the hardware that the kernel logs while runs train: Xids, hardware errors, processes out of memory.

RECORD_BYTES = 8192
"""The kernel hands out one record a read, and none is longer."""
MOST_RECORDS = 1000
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
KINDS = (
    (re.compile(r"\[Hardware Error\]: Machine check.*|mce: \[Hardware Error\].*"), "hardware error"),
    (re.compile(r"EDAC .*?(\d+) UE "), "uncorrected memory error"),
    (
        re.compile(r"Out of memory: Killed process \d+ \(([^)]*)\)"),
        "the kernel killed {0} for lack of memory",
    ),
    (re.compile(r"(\S+): Link (?:is )?[Dd]own"), "the network card {0} lost its link"),
)


@dataclass
class KernelFaults:
    """Faults that were logged."""

    xids: list[tuple[str, int]] = field(default_factory=list)
    """(the GPU's address on the bus, Xid)"""
    events: dict[str, float] = field(default_factory=dict)
    """A sentence -> how often it was logged."""


class KernelLog:
    """Follows the kernel's log from now on; reads nothing where that is not allowed."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def read(self) -> KernelFaults:
        """Return the faults since the last call."""
        faults = KernelFaults()
        for record in self._records():
            if match := XID.search(record):
                faults.xids.append((match[1], int(match[2])))
            for pattern, words in KINDS:
                if match := pattern.search(record):
                    text = words.format(*match.groups())
                    faults.events[text] = faults.events.get(text, 0.0) + 1.0
        return faults

    def _records(self) -> list[str]:
        records: list[str] = []
        while self._file is not None and len(records) < MOST_RECORDS:
            try:
                data = os.read(self._file, RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read: the next one is there
                continue
            except OSError:  # no more records for now
                break
            if not data:
                break
            records += data.decode(errors="replace").splitlines()
        return records
