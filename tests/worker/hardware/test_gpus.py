"""GPUs are read as far as their driver goes; recorded sequences become readings and events."""

from __future__ import annotations

import pynvml
import pytest

from tests.worker.hardware.recorded_nvml import RecordedNvml
from worker.hardware import gpus as gpus_module
from worker.hardware.gpus import GPM_METRICS, THROTTLING, Gpus
from worker.node.hardware import GpuReader

RECORDED = {
    "GPU-aaaa": {
        "utilisation": [97, 12], "memory": [40 << 30], "temperature": [61, 88], "power_mw": [540_500],
        "energy_mj": [1_000_000, 3_700_000], "clock_mhz": [1980, 1200], "throttle": [4, 4 | 64, 4 | 64],
        "ecc_corrected": [3], "ecc_uncorrected": [1, 3, 3], "pcie_rx_kib": [2048], "pcie_tx_kib": [1024],
        "nvlink_kib": [1000, 3000], "processes": [{77: 5 << 30, 78: None}],
    },
    "GPU-bbbb": {"memory": [1 << 30]},
}  # fmt: skip


@pytest.fixture
def nvml() -> RecordedNvml:
    return RecordedNvml(RECORDED)


def test_sampler_reads_what_a_gpu_reports(nvml):
    first, second = (Gpus(GpuReader(nvml)).read(0.0)[gpu].values for gpu in ("GPU-aaaa", "GPU-bbbb"))
    assert first == {
        "utilisation_percent": 97, "memory_used_bytes": 40 << 30, "temperature_c": 61, "power_w": 540.5,
        "energy_j": 1000, "sm_clock_hz": 1980e6, "memory_clock_hz": 1980e6, "throttle_reasons": 4,
        "ecc_corrected_errors": 3, "ecc_uncorrected_errors": 1, "process/77/memory_bytes": 5 << 30,
        "pcie_received_bytes_per_s": 2048 * 1024, "pcie_sent_bytes_per_s": 1024 * 1024,
    }  # fmt: skip
    assert second == {"memory_used_bytes": 1 << 30}


def test_changes_become_events_once(nvml):
    gpus = Gpus(GpuReader(nvml))
    events = []
    for second in range(3):
        if second == 2:
            nvml.xids = [("GPU-bbbb", 79)]
        read = gpus.read(float(second))
        events.append({gpu: readings.events for gpu, readings in read.items() if readings.events})
    assert events == [
        {},
        {"GPU-aaaa": {"uncorrected memory errors": 2, "slowed down by its temperature (hardware)": 64}},
        {"GPU-bbbb": {"Xid 79": 79}},
    ]


def test_nvlinks_counters_become_rates(nvml):
    gpus = Gpus(GpuReader(nvml))
    gpus.read(0.0)
    values = gpus.read(2.0)["GPU-aaaa"].values
    assert values["nvlink_received_bytes_per_s"] == values["nvlink_sent_bytes_per_s"] == 1000 * 1024


def test_the_drivers_own_measurements_lie_between_two_of_its_samples():
    nvml = RecordedNvml({"GPU-aaaa": {}}, has_gpm=True)
    gpus = Gpus(GpuReader(nvml))
    assert gpus.read(0.0)["GPU-aaaa"].values == {}
    for second in (1.0, 2.0):
        assert gpus.read(second)["GPU-aaaa"].values == {
            "sm_activity_percent": 2, "tensor_activity_percent": 5, "memory_bandwidth_percent": 10,
            "pcie_received_bytes_per_s": 21 * 2**20, "pcie_sent_bytes_per_s": 20 * 2**20,
        }  # fmt: skip
    assert nvml.gpm_samples == ["freed", "freed", "sample 2"]


def test_a_gpu_is_found_by_its_address_as_the_kernel_writes_it(nvml):
    gpus = Gpus(GpuReader(nvml))
    gpus.read(0.0)
    assert (gpus.id_at("0000:3c:00"), gpus.id_at("0000:99:00")) == ("GPU-bbbb", "")


def test_a_node_without_a_driver_has_no_readings_and_no_notice():
    reader = GpuReader()
    if reader.gpus():
        pytest.skip("this machine has a GPU")
    assert Gpus(reader).read(0.0) == {}


def test_the_names_are_nvmls_own():
    names = {*GPM_METRICS, *THROTTLING} | {
        name for name in vars(RecordedNvml) if name.startswith(("nvml", "NVML", "c_nvml"))
    }
    assert {name for name in names if not hasattr(pynvml, name)} == set()
    assert gpus_module.ALL_LINKS == 2**32 - 1
