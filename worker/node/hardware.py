"""What a node is made of and how loaded it is: never raises, never waits long for a GPU driver."""

from __future__ import annotations

import contextlib
import importlib.metadata
import ipaddress
import os
import platform
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil
import pynvml

from domain.messages import Device, NodeLoad
from worker.node import processes

GPU_LIMIT_S = 5.0
"""A driver that has not answered by then counts as hanging; a heartbeat never waits for it."""
LOW_DISK_BYTES = 5 * 1024**3
FOREIGN_BYTES = 2 * 1024**3
"""More than a driver needs for itself: somebody computes there."""
T = TypeVar("T")


class GpuReader:
    """Asks NVML in a thread of its own, with a limit; while one question hangs, no other is asked."""

    def __init__(self, nvml: ModuleType | Any = pynvml, limit_s: float = GPU_LIMIT_S) -> None:
        self._nvml = nvml
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._asking: threading.Thread | None = None
        self.notice: str | None = None
        """One sentence while there are GPUs, or may be, that cannot be asked."""

    def gpus(self) -> list[Device]:
        """The GPUs (or MIG slices) this process may use, in the driver's order."""
        return self._ask(self._list, [])

    def samples(self) -> list[dict[str, Any]]:
        """Utilisation, memory, temperature and power of each GPU; what a GPU does not tell is None."""
        return self._ask(lambda: [self._sample(handle) for handle in self._handles()], [])

    def versions(self) -> dict[str, str]:
        """Versions of the driver and of the newest CUDA it supports."""
        return self._ask(self._versions, {})

    def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        with self._lock:
            return self._ask_alone(question, otherwise)

    def _ask_alone(self, question: Callable[[], T], otherwise: T) -> T:
        if self._asking is not None and self._asking.is_alive():
            self.notice = "GPU metrics unavailable: the driver has not answered the last question yet."
            return otherwise
        answers: list[T] = []
        self._asking = threading.Thread(
            target=lambda: answers.extend(self._answer(question)), name="nvml", daemon=True
        )
        self._asking.start()
        self._asking.join(self._limit_s)
        if self._asking.is_alive():
            self.notice = f"GPU metrics unavailable: the driver did not answer within {self._limit_s:g} s."
        return answers[0] if answers else otherwise

    def _answer(self, question: Callable[[], T]) -> Iterator[T]:
        """One answer, or none and the reason as a notice; a node without a driver has no notice."""
        try:
            self._nvml.nvmlInit()
            answer = question()
        except Exception as error:
            absent = type(error).__name__ in ("NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded")
            self.notice = None if absent else f"GPU metrics unavailable: {error}."
            return
        self.notice = None
        yield answer

    def _handles(self) -> list[Any]:
        """GPUs, and where a GPU is sliced (MIG) its slices; only what CUDA_VISIBLE_DEVICES leaves."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen = None if visible is None else [word.strip() for word in visible.split(",") if word.strip()]
        handles = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            gpu = self._nvml.nvmlDeviceGetHandleByIndex(index)
            for handle in self._slices(gpu) or [gpu]:
                if chosen is None or str(index) in chosen or self._is_named(handle, chosen):
                    handles.append(handle)
        return handles

    def _slices(self, gpu: Any) -> list[Any]:
        nvml = self._nvml
        slices: list[Any] = []
        with contextlib.suppress(Exception):
            if nvml.nvmlDeviceGetMigMode(gpu)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
                for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                    with contextlib.suppress(Exception):
                        slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        return slices

    def _is_named(self, handle: Any, chosen: list[str]) -> bool:
        uuid = _text(self._nvml.nvmlDeviceGetUUID(handle))
        return any(not word.isdigit() and uuid.startswith(word) for word in chosen)

    def _list(self) -> list[Device]:
        return [
            Device(
                id=_text(self._nvml.nvmlDeviceGetUUID(handle)),
                kind="cuda",
                name=_text(self._nvml.nvmlDeviceGetName(handle)),
                memory_bytes=_or_none(partial(self._memory_bytes, handle)),
            )
            for handle in self._handles()
        ]

    def _memory_bytes(self, handle: Any) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)

    def _sample(self, handle: Any) -> dict[str, Any]:
        nvml = self._nvml
        temperature = _or_none(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        return {
            "id": _text(nvml.nvmlDeviceGetUUID(handle)),
            "utilisation_percent": _or_none(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "memory_used_bytes": _or_none(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "temperature_c": temperature if temperature is not None and -20 <= temperature <= 150 else None,
            "power_w": _or_none(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            "foreign": _or_none(lambda: self._has_foreign_process(handle)),
        }

    def _has_foreign_process(self, handle: Any) -> bool:
        """Does a process compute there that none of our runs started? In a container ours are not known by
        the ids the driver names, but then the server knows that the GPU is ours."""
        found = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if not found:  # a container may be shown none of the processes outside of it
            return int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used) > FOREIGN_BYTES
        return any(processes.RUN_VARIABLE not in processes.environment(process.pid) for process in found)

    def _versions(self) -> dict[str, str]:
        cuda = int(self._nvml.nvmlSystemGetCudaDriverVersion())
        driver = _text(self._nvml.nvmlSystemGetDriverVersion())
        return {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}


GPUS = GpuReader()


def devices(slots: int | None, gpus: GpuReader = GPUS) -> list[Device]:
    """A node's slots: its GPUs (the first `slots` of them), else `slots` CPU slots (default: its cores)."""
    if found := gpus.gpus():
        return found[:slots]
    name = _processor()
    return [Device(id=f"cpu:{index}", kind="cpu", name=name) for index in range(slots or cores())]


def sample_load(data_dir: Path, gpus: GpuReader = GPUS) -> NodeLoad:
    """The node's load now; the processor's since the last call."""
    load = NodeLoad()
    with contextlib.suppress(OSError, psutil.Error, RuntimeError):
        load.cpu_percent = psutil.cpu_percent(None)
        memory = psutil.virtual_memory()
        load.memory_used_bytes, load.memory_total_bytes = memory.total - memory.available, memory.total
    with contextlib.suppress(OSError):
        disk = shutil.disk_usage(data_dir)
        load.disk_free_bytes, load.disk_total_bytes = disk.free, disk.total
        if disk.free < min(LOW_DISK_BYTES, disk.total // 20):
            load.notice = f"The disk of {data_dir} is nearly full: {disk.free / 1024**3:.1f} GiB are free."
    load.gpus = gpus.samples()
    load.notice = load.notice or gpus.notice
    return load


def node_info(gpus: GpuReader = GPUS) -> dict[str, Any]:
    """What does not change while the worker runs; torch is looked up, not imported."""
    return {
        "rankzero_version": _installed_version("rankzero"),
        "python": sys.executable,
        "python_version": platform.python_version(),
        "torch_version": _installed_version("torch"),
        "cores": cores(),
        "memory_bytes": _or_none(lambda: psutil.virtual_memory().total),
        "platform": platform.platform(),
        "processor": _processor(),
        "hostname": socket.gethostname(),
        **{f"{part}_version": version for part, version in gpus.versions().items()},
    }


def cores() -> int:
    """Cores this process may use: fewer than the machine has when it is confined."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def address_towards(server_url: str) -> str:
    """The address of this node on its route to the server; connecting UDP sends nothing."""
    try:
        host, port = urlsplit(server_url).hostname or "127.0.0.1", port_of(server_url)
        routes = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        # IPv4 first: `localhost` may name both, and launchers are happier with it.
        for family, kind, _, _, target in sorted(routes, key=lambda route: route[0] != socket.AF_INET):
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
    except (OSError, ValueError, UnicodeError):
        pass
    return "127.0.0.1"


def port_of(url: str) -> int | None:
    """The port a URL names, or its scheme's; None for one that names no possible port."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return parts.port or (443 if parts.scheme == "https" else 80)
    return None


def is_loopback(address: str) -> bool:
    """Nobody on another machine reaches it."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return False


def address_reached_by_others(port: int) -> str | None:
    """The address of this machine at which others are connected to a port of it just now."""
    with contextlib.suppress(OSError, psutil.Error):
        here = {known.address for addresses in psutil.net_if_addrs().values() for known in addresses}
        for connection in psutil.net_connections("tcp"):
            ends = [
                (end.ip.removeprefix("::ffff:"), end.port)
                for end in (connection.laddr, connection.raddr)
                if end
            ]
            if connection.status != psutil.CONN_ESTABLISHED or len(ends) < 2 or ends[0][1] != port:
                continue
            own, other = ends[0][0], ends[1][0]
            if own in here and other not in here and not is_loopback(own):
                return own
    return None


def interface_of(address: str) -> str | None:
    """The network interface that has this address: what gloo and nccl must be told."""
    with contextlib.suppress(ValueError, OSError):
        wanted = ipaddress.ip_address(address.partition("%")[0])
        for name, addresses in psutil.net_if_addrs().items():
            for known in addresses:
                with contextlib.suppress(ValueError):
                    if ipaddress.ip_address(known.address.partition("%")[0]) == wanted:
                        return name
    return None


def _processor() -> str:
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _or_none(question: Callable[[], T]) -> T | None:
    """Not every GPU tells everything (a slice has no temperature, a container no power)."""
    try:
        return question()
    except Exception:
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
