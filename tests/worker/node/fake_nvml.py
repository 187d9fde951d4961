"""An NVML with two GPUs, for tests that replace single calls."""

from __future__ import annotations

from types import SimpleNamespace


class FakeNvml:
    """Two GPUs; each call may be replaced."""

    NVML_DEVICE_MIG_ENABLE = 1
    NVML_TEMPERATURE_GPU = 0
    names = ("GPU-aaaa", "GPU-bbbb")

    def nvmlInit(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self.names[index]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"NVIDIA H100"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=80 << 30, used=1 << 30)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        raise RuntimeError("Not Supported")

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return []

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 12080

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"
