"""A node tells its devices and load whatever its GPU driver does, hanging included."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.end_to_end.product import wait_for
from tests.worker.node.fake_nvml import FakeNvml
from tests.worker.started import started
from worker.node.hardware import (
    GpuReader,
    address_reached_by_others,
    address_towards,
    cores,
    devices,
    interface_of,
    node_info,
    port_of,
    sample_load,
)


class NVMLError_LibraryNotFound(Exception):
    """As pynvml calls it."""


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def without_driver() -> GpuReader:
    nvml = FakeNvml()

    def fail() -> None:
        raise NVMLError_LibraryNotFound

    nvml.nvmlInit = fail  # type: ignore[method-assign]
    return GpuReader(nvml)


def test_without_a_gpu_the_slots_are_cores() -> None:
    gpus = without_driver()
    assert [device.id for device in devices(None, gpus)] == [f"cpu:{index}" for index in range(cores())]
    assert [(device.id, device.kind) for device in devices(3, gpus)] == [(f"cpu:{i}", "cpu") for i in range(3)]
    assert gpus.notice is None


def test_gpus_are_known_by_their_uuid() -> None:
    devices_found = devices(None, GpuReader(FakeNvml()))
    assert [(device.id, device.kind, device.name, device.memory_bytes) for device in devices_found] == [
        ("GPU-aaaa", "cuda", "NVIDIA H100", 80 << 30),
        ("GPU-bbbb", "cuda", "NVIDIA H100", 80 << 30),
    ]
    assert [device.id for device in devices(1, GpuReader(FakeNvml()))] == ["GPU-aaaa"]


@pytest.mark.parametrize(
    ("visible", "ids"), [("1", ["GPU-bbbb"]), ("GPU-a", ["GPU-aaaa"]), ("0,1", ["GPU-aaaa", "GPU-bbbb"])]
)
def test_only_the_gpus_given_to_the_worker_count(monkeypatch: pytest.MonkeyPatch, visible: str, ids: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [device.id for device in devices(None, GpuReader(FakeNvml()))] == ids


def test_a_worker_with_no_gpu_left_to_it_offers_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert {device.kind for device in devices(None, GpuReader(FakeNvml()))} == {"cpu"}


def test_a_sliced_gpu_is_its_slices() -> None:
    nvml = FakeNvml()
    nvml.nvmlDeviceGetMigMode = lambda handle: [int(handle == "GPU-aaaa")] * 2  # type: ignore[method-assign]
    nvml.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7  # type: ignore[attr-defined]

    def slice_of(handle: str, index: int) -> str:
        if index > 1:
            raise RuntimeError("Not Found")
        return f"MIG-{handle[-4:]}-{index}"

    nvml.nvmlDeviceGetMigDeviceHandleByIndex = slice_of  # type: ignore[attr-defined]
    assert [device.id for device in devices(None, GpuReader(nvml))] == [
        "MIG-aaaa-0",
        "MIG-aaaa-1",
        "GPU-bbbb",
    ]


def test_load_names_each_gpu_and_leaves_out_what_it_does_not_tell(tmp_path: Path) -> None:
    load = sample_load(tmp_path, GpuReader(FakeNvml()))
    assert load.gpus[0] == {
        "id": "GPU-aaaa",
        "utilisation_percent": 97,
        "memory_used_bytes": 1 << 30,
        "temperature_c": 61,
        "power_w": None,
        "foreign": False,
    }
    assert 0 < load.memory_used_bytes < load.memory_total_bytes
    assert 0 < load.disk_free_bytes < load.disk_total_bytes


def test_a_gpu_is_foreign_while_a_process_computes_there_that_no_run_of_ours_started(tmp_path: Path) -> None:
    nvml = FakeNvml()
    with (
        started(["sleep", "600"], env={"RANKZERO_RUN_ID": "abcdefghij"}) as ours,
        started(["sleep", "600"], env={"HOME": "/"}) as theirs,
    ):
        pids = {"GPU-aaaa": [ours.pid], "GPU-bbbb": [ours.pid, theirs.pid]}
        nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: [  # type: ignore[method-assign]
            SimpleNamespace(pid=pid) for pid in pids[handle]
        ]
        try:
            assert [gpu["foreign"] for gpu in sample_load(tmp_path, GpuReader(nvml)).gpus] == [False, True]
            pids["GPU-aaaa"] = [2**22 + 1]  # known to nobody here: ended, or outside of this container
            assert sample_load(tmp_path, GpuReader(nvml)).gpus[0]["foreign"] is True
            pids["GPU-aaaa"] = []
            used = SimpleNamespace(total=80 << 30, used=60 << 30)
            nvml.nvmlDeviceGetMemoryInfo = lambda handle: used  # type: ignore[method-assign]
            assert sample_load(tmp_path, GpuReader(nvml)).gpus[0]["foreign"] is True
        finally:
            ours.kill()
            theirs.kill()


def test_a_temperature_that_cannot_be_is_none(tmp_path: Path) -> None:
    nvml = FakeNvml()
    nvml.nvmlDeviceGetTemperature = lambda handle, sensor: -273  # type: ignore[method-assign]
    assert sample_load(tmp_path, GpuReader(nvml)).gpus[0]["temperature_c"] is None


def test_a_hanging_driver_holds_nobody_up_and_is_asked_again_when_it_answers(tmp_path: Path) -> None:
    answer, asked = threading.Event(), list[bool]()
    nvml = FakeNvml()

    def hang() -> None:
        asked.append(True)
        answer.wait()

    nvml.nvmlInit = hang  # type: ignore[method-assign]
    gpus = GpuReader(nvml, limit_s=0.1)
    assert "did not answer within 0.1 s" in (sample_load(tmp_path, gpus).notice or "")
    gpus._limit_s = 3600.0  # who waited now would wait for longer than a test may take
    for _ in range(20):
        load = sample_load(tmp_path, gpus)
    assert load.gpus == [] and "has not answered the last question yet" in (load.notice or "")
    assert len(asked) == 1
    answer.set()
    wait_for(lambda: sample_load(tmp_path, gpus).gpus, "the driver's answer")
    assert sample_load(tmp_path, gpus).notice is None


def test_a_gpu_fallen_off_the_bus_is_a_notice(tmp_path: Path) -> None:
    nvml = FakeNvml()

    def lost(handle: str) -> str:
        raise RuntimeError("GPU is lost")

    nvml.nvmlDeviceGetUUID = lost  # type: ignore[method-assign]
    load = sample_load(tmp_path, GpuReader(nvml))
    assert load.notice == "GPU metrics unavailable: GPU is lost."


def test_a_folder_that_is_gone_does_not_stop_the_sample(tmp_path: Path) -> None:
    load = sample_load(tmp_path / "gone", without_driver())
    assert load.disk_total_bytes == 0 and load.memory_total_bytes > 0


def test_a_nearly_full_disk_is_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1 << 30, total=100 << 30))
    assert "nearly full: 1.0 GiB are free" in (sample_load(tmp_path, without_driver()).notice or "")


def test_hardware_describes_the_node() -> None:
    info = node_info(GpuReader(FakeNvml()))
    assert info["python"] == sys.executable
    assert (info["cuda_version"], info["driver_version"]) == ("12.8", "570.1")
    assert info["cores"] == cores() and info["memory_bytes"] > 0 and info["hostname"] == socket.gethostname()
    assert "cuda_version" not in node_info(without_driver())


def test_the_torch_version_is_known_without_importing_torch() -> None:
    code = "import sys, worker.node.hardware as h; print(h.node_info()['torch_version'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    version, imported = done.stdout.split()
    assert version[0].isdigit() and imported == "False" and done.stderr == ""


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8765", "127.0.0.1"),
        ("http://nowhere.invalid:8765", "127.0.0.1"),
        ("http://[::1]:8765/", "::1"),
        ("http://host:notaport", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_the_address_on_the_route_to_the_server(url: str, address: str) -> None:
    if address == "::1" and interface_of("::1") is None:
        address = "127.0.0.1"
    assert address_towards(url) == address


def test_the_address_others_reach_is_that_of_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"lo": ["127.0.0.1"], "eth0": ["192.168.0.7"], "lan0": ["10.0.0.1"]}
    known = {name: [SimpleNamespace(address=each) for each in held] for name, held in here.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: known)
    established = [
        ("10.0.0.1", 9999, "10.0.0.2"),  # another service
        ("127.0.0.1", 8765, "127.0.0.1"),
        ("192.168.0.7", 8765, "10.0.0.1"),  # from this machine itself
        ("::ffff:10.0.0.1", 8765, "::ffff:10.0.0.2"),
    ]
    devices_found = [connection(own, port, other) for own, port, other in established]
    listening = SimpleNamespace(status=psutil.CONN_LISTEN, laddr=devices_found[3].laddr, raddr=())
    monkeypatch.setattr(psutil, "net_connections", lambda kind: [listening, *devices_found])
    assert address_reached_by_others(8765) == "10.0.0.1"
    del devices_found[3]
    assert address_reached_by_others(8765) is None


def connection(own: str, port: int, other: str) -> SimpleNamespace:
    ends = [SimpleNamespace(ip=ip, port=each) for ip, each in ((own, port), (other, 40000))]
    return SimpleNamespace(status=psutil.CONN_ESTABLISHED, laddr=ends[0], raddr=ends[1])


def test_an_impossible_port_is_none() -> None:
    assert [port_of(f"http://h{end}") for end in ("", ":81", ":99999")] == [80, 81, None]


def test_the_interface_of_an_address() -> None:
    assert (interface_of("127.0.0.1") or "").startswith("lo")
    assert interface_of("203.0.113.77") is None
    assert interface_of("no address") is None
