"""An NVML that replays recorded sequences: each reading of a GPU is the next moment of its recording."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NotSupported(Exception):
    """NVML's answer for what a GPU or driver does not have."""


class RecordedNvml:
    """GPUs by their recordings: {id: {function: [value of each moment]}}; the last value stays."""

    NVML_DEVICE_MIG_ENABLE = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_VOLATILE_ECC = 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 2, 5, 10
    NVML_GPM_METRIC_PCIE_TX_PER_SEC, NVML_GPM_METRIC_PCIE_RX_PER_SEC = 20, 21
    NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 60, 61
    nvmlEventTypeXidCriticalError = 8
    nvmlClocksEventReasonSwThermalSlowdown = 32
    nvmlClocksThrottleReasonHwThermalSlowdown = 64
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128

    def __init__(self, recordings: dict[str, dict[str, list[Any]]], has_gpm: bool = False) -> None:
        self._recordings, self._has_gpm = recordings, has_gpm
        self._moments: dict[str, int] = dict.fromkeys(recordings, -1)
        self.xids: list[tuple[str, int]] = []
        self.gpm_samples: list[str] = []

    def _now(self, handle: str, name: str) -> Any:
        values = self._recordings[handle].get(name)
        if values is None:
            raise NotSupported(name)
        return values[min(self._moments[handle], len(values) - 1)]

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self._recordings)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return list(self._recordings)[index]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        """The first call of a reading: the recording goes on by a moment."""
        self._moments[handle] += 1
        index = list(self._recordings).index(handle)
        return SimpleNamespace(busId=f"00000000:{0x3B + index:02X}:00.0".encode())

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._now(handle, "utilisation"))

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(used=self._now(handle, "memory"))

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return self._now(handle, "temperature")

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return self._now(handle, "power_mw")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return self._now(handle, "energy_mj")

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return self._now(handle, "clock_mhz")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self._now(handle, "throttle")

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> int:
        return self._now(handle, "ecc_uncorrected" if kind else "ecc_corrected")

    def nvmlDeviceGetPcieThroughput(self, handle: str, direction: int) -> int:
        return self._now(handle, "pcie_rx_kib" if direction else "pcie_tx_kib")

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        kib = self._now(handle, "nvlink_kib")
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=kib)) for _ in fields]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in self._now(handle, "processes").items()
        ]

    # -- GPM -------------------------------------------------------------------------------------

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=self._has_gpm)

    def nvmlGpmSampleAlloc(self) -> str:
        self.gpm_samples.append(f"sample {len(self.gpm_samples)}")
        return self.gpm_samples[-1]

    def nvmlGpmSampleGet(self, handle: str, sample: str) -> str:
        return sample

    def nvmlGpmSampleFree(self, sample: str) -> None:
        self.gpm_samples[self.gpm_samples.index(sample)] = "freed"

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(10)]
        return SimpleNamespace(metrics=metrics)

    def nvmlGpmMetricsGet(self, wanted: SimpleNamespace) -> None:
        assert "freed" not in (wanted.sample1, wanted.sample2) and wanted.sample1 != wanted.sample2
        for metric in wanted.metrics[: wanted.numMetrics]:
            metric.value = float(metric.metricId)
            metric.nvmlReturn = int(metric.metricId >= 60)  # no NVLink

    # -- events ----------------------------------------------------------------------------------

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlDeviceRegisterEvents(self, handle: str, kinds: int, events: str) -> None: ...

    def nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> SimpleNamespace:
        if not self.xids:
            raise NotSupported("timeout")
        gpu, xid = self.xids.pop(0)
        return SimpleNamespace(device=gpu, eventData=xid)
