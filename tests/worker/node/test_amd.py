"""AMD's GPUs are read from a tree as Linux has it; what is not in it is not shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from domain.launch.plan import visible_devices
from tests.worker.node.fake_nvml import FakeNvml
from worker.hardware.gpus import Gpus
from worker.node.amd import AmdGpus
from worker.node.hardware import GpuReader, devices

ID = "5a3f9c0d1e2b4f60"
GIB = 1024**3


def write(folder: Path, **files: object) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return folder


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A GPU that trains, graphics in the processor, a connector, and another vendor's card."""
    drm = tmp_path / "class/drm"
    gpu = write(
        drm / "card1/device", vendor="0x1002", device="0x74a1", unique_id=ID, product_name="AMD Instinct MI300X",
        gpu_busy_percent=93, mem_info_vram_total=192 * GIB, mem_info_vram_used=100 * GIB,
    )  # fmt: skip
    write(gpu / "hwmon/hwmon4", temp1_input=61000, power1_average=512000000, freq1_input=2100000000)
    write(gpu / "ras", umc_err_count="ue: 0\nce: 7")
    write(drm / "card0/device", vendor="0x1002", unique_id="1111111111111111", mem_info_vram_total=GIB // 2)
    write(drm / "card1-DP-1", status="disconnected")
    write(drm / "card2/device", vendor="0x10de")
    kfd = tmp_path / "class/kfd/kfd"
    write(kfd / "topology/nodes/0", properties="simd_count 0\nunique_id 0", gpu_id=0)
    write(kfd / "topology/nodes/1", properties=f"simd_count 304\nunique_id {int(ID, 16)}", gpu_id=51001)
    write(kfd / "topology/nodes/2", properties=f"simd_count 2\nunique_id {int('1' * 16, 16)}", gpu_id=7)
    write(kfd / f"proc/{os.getpid()}", vram_51001=3 * GIB, vram_7=0)
    return tmp_path


def reader(sysfs: Path) -> GpuReader:
    nvml = FakeNvml()
    nvml.names = ()  # type: ignore[assignment]
    return GpuReader(nvml, amd=AmdGpus(sysfs))


def test_a_gpu_with_memory_of_its_own_is_a_device_as_nvidias_are(sysfs: Path) -> None:
    (gpu,) = devices(None, reader(sysfs))
    assert (gpu.id, gpu.kind, gpu.name, gpu.memory_bytes) == (f"GPU-{ID}", "cuda", "AMD Instinct MI300X", 192 * GIB)
    assert visible_devices([gpu.id]) == {"ROCR_VISIBLE_DEVICES": f"GPU-{ID}"}
    nvidia = "GPU-1f2e3d4c-0000-1111-2222-333344445555"
    assert visible_devices([nvidia]) == {"CUDA_VISIBLE_DEVICES": nvidia} and visible_devices([]) == {
        "CUDA_VISIBLE_DEVICES": ""
    }


def test_its_load_has_the_fields_of_nvidias_and_names_who_is_on_it(sysfs: Path) -> None:
    (sample,) = reader(sysfs).samples(())
    holders = sample.pop("holders")
    assert sample == {
        "id": f"GPU-{ID}", "utilisation_percent": 93, "memory_used_bytes": 100 * GIB, "temperature_c": 61.0,
        "power_w": 512.0, "foreign": True,
    }  # fmt: skip
    assert [(holder["pid"], holder["memory_bytes"]) for holder in holders] == [(os.getpid(), 3 * GIB)]


def test_its_readings_are_those_that_the_files_have_and_new_errors_are_events(sysfs: Path) -> None:
    gpus = Gpus(reader(sysfs))
    first = gpus.read(0.0)[f"GPU-{ID}"]
    assert first.values == {
        "utilisation_percent": 93, "memory_used_bytes": 100 * GIB, "temperature_c": 61.0, "power_w": 512.0,
        "sm_clock_hz": 2.1e9, "ecc_corrected_errors": 7, "ecc_uncorrected_errors": 0,
        f"process/{os.getpid()}/memory_bytes": 3 * GIB,
    }  # fmt: skip
    write(sysfs / "class/drm/card1/device/ras", umc_err_count="ue: 2\nce: 7")
    assert gpus.read(5.0)[f"GPU-{ID}"].events == {"uncorrected memory errors": 2.0}
    count = sysfs / "class/drm/card1/device/ras/umc_err_count"
    count.rename(count.with_name("unreadable"))
    assert gpus.read(10.0)[f"GPU-{ID}"].events == {}
    count.with_name("unreadable").rename(count)
    assert gpus.read(15.0)[f"GPU-{ID}"].events == {}, "they were told of before"


def test_without_the_compute_driver_or_beside_nvidias_there_are_none(sysfs: Path, tmp_path: Path) -> None:
    beside = GpuReader(FakeNvml(), amd=AmdGpus(sysfs))
    assert [gpu.name for gpu in beside.gpus()] == ["NVIDIA H100"] * 2
    for path in sorted((sysfs / "class/kfd").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert AmdGpus(sysfs).cards() == [] and AmdGpus(tmp_path / "none").cards() == []
