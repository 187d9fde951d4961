"""Reads a node's hardware and load; never raises and never waits long for a GPU driver."""

from __future__ import annotations

import contextlib
import importlib.metadata
import ipaddress
import math
import os
import platform
import shlex
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil
import pynvml

from domain.masking.masking import masked_args
from domain.messages import Device, NodeLoad
from domain.text.formats import size
from worker.node import control_groups, processes
from worker.node.amd import AmdGpus, Card

GPU_LIMIT_S = 5.0
"""A driver that has not answered by then counts as hung; heartbeats never wait longer."""
LOW_DISK_BYTES = 5 * 1024**3
FOREIGN_BYTES = 2 * 1024**3
"""More GPU memory than a driver itself uses: another process computes there."""
LONGEST_COMMAND = 200
T = TypeVar("T")


class GpuReader:
    """Queries drivers in a thread with a time limit; while one query hangs, no other is sent."""

    def __init__(
        self, nvml: ModuleType | Any = pynvml, limit_s: float | None = None, amd: AmdGpus | None = None
    ) -> None:
        """`limit_s`: another limit than `GPU_LIMIT_S`. `amd`: AMD's GPUs, which count where NVML has none."""
        self._nvml, self._amd = nvml, amd
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._query_thread: threading.Thread | None = None
        self.notice: str | None = None
        """One sentence while GPUs exist (or may exist) that cannot be queried."""

    def gpus(self) -> list[Device]:
        """The GPUs (or MIG slices) this process may use, in the driver's order."""
        return self._query(self._list, []) or self._query_amd(lambda amd: amd.devices(), [])

    def samples(self, live: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Utilisation, memory, temperature and power of each GPU, and what holds it; None for values a GPU does not
        report. `live`: the runs with processes here; None: any process of a run is one of ours."""
        none: list[dict[str, Any]] = []
        nvidias = self._query(lambda: [self._sample(handle, live) for handle in self._handles()], none)
        return nvidias or self._query_amd(lambda amd: [_amd_sample(amd, card, live) for card in amd.cards()], [])

    def read_amd(self) -> dict[str, dict[str, float]]:
        """GPU id -> what is read of it, and process memory as `process/PID/memory_bytes`, of AMD's GPUs."""
        return self._query_amd(lambda amd: {card.id: _amd_levels(amd, card) for card in amd.cards()}, {})

    @property
    def nvml(self) -> ModuleType | Any:
        """NVML; it may only be called within a query."""
        return self._nvml

    def query(self, query: Callable[[], T], default: T) -> T:
        """The answer to a query, or the default while the driver does not answer."""
        return self._query(query, default)

    def read(self, read: Callable[[ModuleType | Any, str, Any], T]) -> dict[str, T]:
        """GPU id -> the result of `read(nvml, id, handle)`; empty while the driver does not answer."""
        return self._query(
            lambda: {gpu_id: read(self._nvml, gpu_id, handle) for gpu_id, handle in self.handles_by_id()},
            {},
        )

    def handles_by_id(self) -> list[tuple[str, Any]]:
        """(id, handle) of each GPU; only within a query."""
        return [(text(self._nvml.nvmlDeviceGetUUID(handle)), handle) for handle in self._handles()]

    def versions(self) -> dict[str, str]:
        """The versions of the driver and of the newest CUDA that it supports."""
        return self._query(self._versions, {})

    def _query(self, query: Callable[[], T], default: T) -> T:
        with self._lock:
            return self._query_locked(partial(self._run_query, query), default)

    def _query_amd(self, query: Callable[[AmdGpus], T], default: T) -> T:
        if (amd := self._amd) is None:
            return default
        with self._lock:
            return self._query_locked(lambda: iter([query(amd)]), default)

    def _query_locked(self, answers_of: Callable[[], Iterator[T]], default: T) -> T:
        if self._query_thread is not None and self._query_thread.is_alive():
            self.notice = "GPU metrics unavailable: the driver has not answered the last question yet."
            return default
        answers: list[T] = []
        self._query_thread = threading.Thread(target=lambda: answers.extend(answers_of()), name="gpus", daemon=True)
        self._query_thread.start()
        limit_s = GPU_LIMIT_S if self._limit_s is None else self._limit_s
        self._query_thread.join(limit_s)
        if self._query_thread.is_alive():
            self.notice = f"GPU metrics unavailable: the driver did not answer within {limit_s:g} s."
        return answers[0] if answers else default

    def _run_query(self, query: Callable[[], T]) -> Iterator[T]:
        """Yield the answer, or nothing and set the notice; a node without a driver gets no notice."""
        try:
            self._nvml.nvmlInit()
            answer = query()
        except Exception as error:
            absent = type(error).__name__ in ("NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded")
            self.notice = None if absent else f"GPU metrics unavailable: {error}."
            return
        self.notice = None
        yield answer

    def _handles(self) -> list[Any]:
        """The GPUs, or the slices of a GPU in MIG mode, that CUDA_VISIBLE_DEVICES allows."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible_ids = (
            None if visible is None else [device_id.strip() for device_id in visible.split(",") if device_id.strip()]
        )
        handles = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            gpu = self._nvml.nvmlDeviceGetHandleByIndex(index)
            for handle in self._slices(gpu) or [gpu]:
                if visible_ids is None or str(index) in visible_ids or self._is_visible(handle, visible_ids):
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

    def _is_visible(self, handle: Any, visible_ids: list[str]) -> bool:
        uuid = text(self._nvml.nvmlDeviceGetUUID(handle))
        return any(not device_id.isdigit() and uuid.startswith(device_id) for device_id in visible_ids)

    def _list(self) -> list[Device]:
        return [
            Device(
                id=text(self._nvml.nvmlDeviceGetUUID(handle)),
                kind="cuda",
                name=text(self._nvml.nvmlDeviceGetName(handle)),
                memory_bytes=_or_none(partial(self._memory_bytes, handle)),
            )
            for handle in self._handles()
        ]

    def _memory_bytes(self, handle: Any) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)

    def _sample(self, handle: Any, live: Collection[str] | None) -> dict[str, Any]:
        nvml = self._nvml
        holders = _or_none(lambda: self._holders(handle, live))
        temperature = _or_none(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        return {
            "id": text(nvml.nvmlDeviceGetUUID(handle)),
            "utilisation_percent": _or_none(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "memory_used_bytes": _or_none(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "temperature_c": temperature if temperature is not None and -20 <= temperature <= 150 else None,
            "power_w": _or_none(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            "foreign": None if holders is None else bool(holders),
        } | ({"holders": holders} if holders else {})

    def _holders(self, handle: Any, live: Collection[str] | None) -> list[dict[str, Any]]:
        """The processes on the GPU that belong to no run of ours, also what an ended one left. Inside a container the
        driver's process ids do not match ours, but then the server knows that the GPU is allocated."""
        gpu_processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if not gpu_processes:  # a container may not see the processes outside it
            used = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)
            return [{"memory_bytes": used}] if used > FOREIGN_BYTES else []
        return _not_ours({process.pid: getattr(process, "usedGpuMemory", None) for process in gpu_processes}, live)

    def _versions(self) -> dict[str, str]:
        cuda = int(self._nvml.nvmlSystemGetCudaDriverVersion())
        driver = text(self._nvml.nvmlSystemGetDriverVersion())
        return {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}


GPUS = GpuReader(amd=AmdGpus())


def devices(slots: int | None, gpus: GpuReader = GPUS) -> list[Device]:
    """The node's devices: its GPUs (the first `slots` of them), else `slots` CPU slots (default: one per core)."""
    if gpu_devices := gpus.gpus():
        return gpu_devices[:slots]
    name = _processor()
    return [Device(id=f"cpu:{index}", kind="cpu", name=name) for index in range(slots or cores())]


def _not_ours(memory_of: Mapping[int, int | None], live: Collection[str] | None) -> list[dict[str, Any]]:
    """The processes on a GPU that belong to none of the live runs; `memory_of`: bytes by process id."""
    environments = {pid: processes.environment(pid) for pid in memory_of}
    runs = {pid: env.get(processes.RUN_VARIABLE) for pid, env in environments.items()}
    ours = {pid for pid, run in runs.items() if run is not None and (live is None or run in live)}
    ours |= {pid for pid, env in environments.items() if processes.CHECK_VARIABLE in env}
    return [_holder(int(pid), memory, runs[pid]) for pid, memory in memory_of.items() if pid not in ours]


def _holder(pid: int, memory: int | None, run: str | None) -> dict[str, Any]:
    """A process on a GPU, with its user and its command, secrets masked, where they can be seen."""
    holder: dict[str, Any] = {"pid": pid, "memory_bytes": memory or None, "run": run}
    with contextlib.suppress(psutil.Error, OSError, KeyError):
        process = psutil.Process(pid)
        holder["command"] = shlex.join(masked_args(process.cmdline()))[:LONGEST_COMMAND] or process.name()
        holder["user"] = process.username()
    return holder


def _amd_sample(amd: AmdGpus, card: Card, live: Collection[str] | None) -> dict[str, Any]:
    """A sample with the fields that NVIDIA's have."""
    levels, held = amd.levels(card), amd.processes(card)
    used = levels.get("memory_used_bytes", 0.0)
    hidden = [{"memory_bytes": int(used)}] if used > FOREIGN_BYTES and not held else []
    holders = _not_ours(held, live) or hidden
    names = ("utilisation_percent", "memory_used_bytes", "temperature_c", "power_w")
    sample = {"id": card.id} | {name: levels.get(name) for name in names} | {"foreign": bool(holders)}
    return sample | ({"holders": holders} if holders else {})


def _amd_levels(amd: AmdGpus, card: Card) -> dict[str, float]:
    held = {f"process/{pid}/memory_bytes": float(size) for pid, size in amd.processes(card).items()}
    return amd.levels(card) | held


def sample_load(data_dir: Path, gpus: GpuReader = GPUS, live: Collection[str] | None = None) -> NodeLoad:
    """The node's current load; CPU usage is the average since the previous call. `live`: as in `GpuReader.samples`."""
    load = NodeLoad()
    with contextlib.suppress(OSError, psutil.Error, RuntimeError):
        load.cpu_percent = psutil.cpu_percent(None)
        memory = psutil.virtual_memory()
        load.memory_used_bytes, load.memory_total_bytes = memory.total - memory.available, memory.total
    with contextlib.suppress(OSError):
        disk = shutil.disk_usage(data_dir)
        load.disk_free_bytes, load.disk_total_bytes = disk.free, disk.total
        if disk.free < min(LOW_DISK_BYTES, disk.total // 20):
            load.notice = f"The disk of {data_dir} is nearly full: {size(disk.free, is_coarse=True)} are free."
    load.gpus = gpus.samples(live)
    load.notice = load.notice or gpus.notice
    return load


def node_info(gpus: GpuReader = GPUS) -> dict[str, Any]:
    """Facts that do not change while the worker runs; torch is looked up, not imported."""
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
        **{f"{component}_version": version for component, version in gpus.versions().items()},
    }


def cores() -> int:
    """The number of cores this process may use, by its affinity and its container's quota (a part counts as one)."""
    quotas = [math.ceil(quota.cores) for quota in control_groups.cpu_quotas()]
    return min([len(allowed_cpus()), *quotas])


def allowed_cpus() -> set[int]:
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def address_towards(server_url: str) -> str:
    """The address of this node on its route to the server; connecting UDP sends nothing."""
    try:
        host, port = urlsplit(server_url).hostname or "127.0.0.1", port_of(server_url)
        routes = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        # IPv4 first: `localhost` may resolve to both, and launchers work better with it.
        for family, kind, _, _, target in sorted(routes, key=lambda route: route[0] != socket.AF_INET):
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
    except (OSError, ValueError, UnicodeError):
        pass
    return "127.0.0.1"


def port_of(url: str) -> int | None:
    """The URL's port, or its scheme's default; None if the port is invalid."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return parts.port or (443 if parts.scheme == "https" else 80)
    return None


def is_loopback(address: str) -> bool:
    """Whether the address is reachable from this machine only."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return False


def address_reached_by_others(port: int) -> str | None:
    """The address of this machine to which other machines are connected at `port`; None if there is none."""
    with contextlib.suppress(OSError, psutil.Error):
        own_addresses = {
            interface_address.address for addresses in psutil.net_if_addrs().values() for interface_address in addresses
        }
        for connection in psutil.net_connections("tcp"):
            ends = [(end.ip.removeprefix("::ffff:"), end.port) for end in (connection.laddr, connection.raddr) if end]
            if connection.status != psutil.CONN_ESTABLISHED or len(ends) < 2 or ends[0][1] != port:
                continue
            local_address, remote_address = ends[0][0], ends[1][0]
            if (
                local_address in own_addresses
                and remote_address not in own_addresses
                and not is_loopback(local_address)
            ):
                return local_address
    return None


def interface_of(address: str) -> str | None:
    """The network interface that has this address, as gloo and nccl need it; None if there is none."""
    with contextlib.suppress(ValueError, OSError):
        parsed_address = ipaddress.ip_address(address.partition("%")[0])
        for name, addresses in psutil.net_if_addrs().items():
            for interface_address in addresses:
                with contextlib.suppress(ValueError):
                    if ipaddress.ip_address(interface_address.address.partition("%")[0]) == parsed_address:
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


def _or_none(query: Callable[[], T]) -> T | None:
    """Return None where the query fails: a MIG slice has no temperature, a container no power reading."""
    try:
        return query()
    except Exception:
        return None


def text(value: str | bytes) -> str:
    """A name as NVML returns it, as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# How many of the cores that this process may use nobody uses.

MEASURED_EVERY_S = 1.0
Reading = tuple[float, Sequence[control_groups.CpuQuota]]
"""Seconds that the cores that we may run on have been idle together, and the quotas above us."""


class IdleCores:
    """Measures them at most once a second; a look in between costs nothing."""

    def __init__(self, read: Callable[[], Reading] | None = None) -> None:
        self._read = read or _read
        self._measured_at, self._before, self._cores = float("-inf"), self._read(), 0.0

    def count(self, now: float) -> float:
        """The idle cores between the last two measurements; 0 before the second."""
        passed_s = now - self._measured_at
        if passed_s >= MEASURED_EVERY_S:
            reading = self._read()
            self._cores = idle_cores(self._before, reading, passed_s)
            self._measured_at, self._before = now, reading
        return self._cores


def idle_cores(before: Reading, after: Reading, passed_s: float) -> float:
    """The idle cores between two readings: those of the machine, and no more than each quota leaves."""
    quotas = zip(before[1], after[1], strict=False)
    left = [_left(first, then, passed_s) for first, then in quotas]
    return max(0.0, min([(after[0] - before[0]) / passed_s, *left]))


def _left(before: control_groups.CpuQuota, after: control_groups.CpuQuota, passed_s: float) -> float:
    """The cores that a quota leaves; none where the kernel does not tell how much of it is used."""
    if before.used_s is None or after.used_s is None:
        return 0.0
    return after.cores - (after.used_s - before.used_s) / passed_s


def _read() -> Reading:
    times = [cpu for number, cpu in enumerate(psutil.cpu_times(percpu=True)) if number in allowed_cpus()]
    idle_s = sum(cpu.idle + getattr(cpu, "iowait", 0.0) for cpu in times)
    return idle_s, control_groups.cpu_quotas()
