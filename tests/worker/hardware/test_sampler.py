"""Samples of all sources stand in the directory of each attempt that trains, and arrive as points exactly once."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.worker.hardware.recorded_nvml import RecordedNvml
from tests.worker.sendings import answering, done
from tests.worker.started import started
from worker.hardware.faults import SENT_FOR_S, RecentFaults
from worker.hardware.sampler import FILE, HardwareFile, HardwareSampler, SampledAttempt
from worker.node.hardware import GpuReader
from worker.session.failures import OffsetMismatch
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import PointStream, PointUploader


class Server:
    """Takes a batch only at the offset it has."""

    def __init__(self) -> None:
        self.offset, self.points, self.fails = 0, {}, []

    def send(self, batch):
        if self.fails:
            raise self.fails.pop()
        if batch.start != self.offset:
            raise OffsetMismatch(self.offset)
        assert (batch.source, batch.path) == ("hardware", FILE)
        self.offset = batch.end
        for name, points in batch.series.items():
            self.points.setdefault(name, []).extend(points)
        return batch.end


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An attempt whose rank 3 is this process, at step 40."""
    (tmp_path / "probe").mkdir()
    record(tmp_path, step=40)
    write_state(tmp_path, running_at=1.0)
    return tmp_path


def record(folder: Path, step: int, **more: int) -> None:
    with (folder / "probe" / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"t": 1.0, "rank": 3, "pid": os.getpid(), "step": step} | more) + "\n")


def write_state(folder: Path, **state) -> None:
    (folder / "supervisor.json").write_text(json.dumps({"ranks": {"3": os.getpid()}, "state": "running"} | state))


def lines(folder: Path) -> list[dict]:
    path = folder / FILE
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def sampler(folder: Path, nvml: RecordedNvml | None = None, kernel_log: Path | None = None) -> HardwareSampler:
    gpus = GpuReader(nvml or RecordedNvml({}))
    return HardwareSampler(folder, gpus, sysfs=folder / "sys", kernel_log=kernel_log or folder / "none")


def stream(folder: Path, server: Server) -> PointStream:
    source = HardwareFile(folder, lambda path, generation: server.offset)
    return PointStream(source.sources, PointUploader(answering(server.send), Omissions(folder)))


def test_a_sample_has_the_host_the_devices_of_the_attempt_and_its_ranks(folder):
    nvml = RecordedNvml(
        {
            "GPU-aaaa": {"power_mw": [100_000], "processes": [{os.getpid(): 3 << 30}]},
            "GPU-bbbb": {"power_mw": [200_000], "processes": [{os.getpid(): 1 << 30}]},
        }
    )
    sampling = sampler(folder, nvml)
    for _ in range(2):
        sampling.sample([SampledAttempt(folder, ("GPU-bbbb",))])
    first, second = lines(folder)
    assert first["step"] == 40 and first["values"]["memory_used_bytes"] > 0
    assert {name: value for name, value in first["values"].items() if name.startswith("gpu")} == {"gpu0/power_w": 200.0}
    assert first["values"]["rank3/gpu_memory_used_bytes"] == 4 << 30
    assert first["values"]["rank3/memory_used_bytes"] > first["values"]["rank3/own_memory_bytes"] > 1e6
    assert first["values"]["memory_available_bytes"] > 0 and first["values"]["shared_memory_free_bytes"] >= 0
    assert second["values"]["rank3/cpu_percent"] >= 0 and "cpu_percent" in second["values"]
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600


def test_a_ranks_loader_processes_count_as_its_own(folder):
    argv = [sys.executable, "-c", "print(flush=True); input()"]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        child.stdout.readline()  # by then it has its memory
        sampler(folder).sample([SampledAttempt(folder, ())])
        values = lines(folder)[0]["values"]
        assert values["rank3/processes"] >= 2 and values["rank3/workers_memory_bytes"] > 1e5
    finally:
        child.communicate()


def test_the_memory_of_a_ranks_device_is_what_its_probe_recorded(folder):
    record(folder, step=41, device_memory_bytes=5 << 30, device_memory_total_bytes=80 << 30)
    sampler(folder).sample([SampledAttempt(folder, ())])
    values = lines(folder)[0]["values"]
    assert (values["rank3/device_memory_bytes"], values["rank3/device_memory_total_bytes"]) == (
        5 << 30,
        80 << 30,
    )


def test_a_rank_that_has_ended_has_no_figures(folder):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # a zombie until it is reaped
        write_state(folder, running_at=1.0, ranks={"1": ended.pid})
        sampler(folder).sample([SampledAttempt(folder, ())])
        assert not any(name.startswith("rank") for name in lines(folder)[0]["values"])
    finally:
        ended.wait()


@pytest.mark.parametrize(
    "state", [{"running_at": None}, {"running_at": 1.0, "state": "ended"}, {"running_at": 1.0, "ranks": {}}],
    ids=["starting", "ended", "without ranks"],
)  # fmt: skip
def test_nothing_is_sampled_while_no_rank_exists(folder, state):
    write_state(folder, **state)
    sampler(folder).sample([SampledAttempt(folder, ())])
    assert lines(folder) == []


def test_an_xid_of_the_kernels_log_is_the_gpus_own_and_counts_once(folder):
    log = folder / "kmsg"
    log.write_text("")
    nvml = RecordedNvml({"GPU-aaaa": {}, "GPU-bbbb": {}})
    sampling = sampler(folder, nvml, log)
    log.write_text("4,2,200,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    nvml.xids = [("GPU-aaaa", 79)]
    other = folder / "other"
    other.mkdir()
    write_state(other, running_at=1.0)
    sampling.sample([SampledAttempt(folder, ("GPU-aaaa",)), SampledAttempt(other, ("GPU-bbbb",))])
    assert lines(folder)[0]["events"] == {"gpu0: Xid 79": 79.0}
    assert "events" not in lines(other)[0]
    sampling.close()


def test_faults_are_read_also_while_nothing_trains_and_sent_for_a_while(tmp_path):
    log = tmp_path / "kmsg"
    log.write_text("")
    throttled = {"throttle": [0, 32, 32], "ecc_uncorrected": [0, 2, 2]}
    nvml, faults = RecordedNvml({"GPU-aaaa": throttled, "GPU-bbbb": {}}), RecentFaults()
    sampling = HardwareSampler(tmp_path, GpuReader(nvml), sysfs=tmp_path, kernel_log=log, faults=faults)
    sampling.sample([])
    assert faults.since(time.time()) == []
    log.write_text("4,2,200,-;NVRM: Xid (PCI:0000:3c:00): 79, GPU has fallen off the bus.\n")
    nvml.xids = [("GPU-aaaa", 45)]
    for _ in range(2):
        sampling.sample([])
    sent = {(fault.device, fault.kind, fault.number) for fault in faults.since(time.time() + 1)}
    assert sent == {
        ("GPU-bbbb", "Xid", 79), ("GPU-aaaa", "Xid", 45), ("GPU-aaaa", "memory errors", 2),
        ("GPU-aaaa", "throttled", None),
    }  # fmt: skip
    assert faults.since(time.time() + SENT_FOR_S + 1) == [] and not (tmp_path / FILE).exists()
    sampling.close()


def test_a_gpu_without_a_process_of_the_run_is_known_where_the_driver_shows_any(tmp_path):
    folder, own = tmp_path, {"RANKZERO_RUN_ID": "abcdefghij"}
    (folder / "probe").mkdir()
    write_state(folder, running_at=1.0)
    (folder / "launch.json").write_text(json.dumps({"env": own}))
    rank = started([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=os.environ | own)
    try:
        busy = {"processes": [{rank.pid: 1 << 30, os.getpid(): 1 << 20}]}
        seen = RecordedNvml({"GPU-aaaa": busy, "GPU-bbbb": {"processes": [{os.getpid(): 1}]}})
        hidden = RecordedNvml({"GPU-aaaa": {"processes": [{}]}, "GPU-bbbb": {"processes": [{}]}})
        for nvml in (seen, hidden):
            sampler(folder, nvml).sample([SampledAttempt(folder, ("GPU-aaaa", "GPU-bbbb"))])
        known, unknown = (one["values"] for one in lines(folder))
        assert (known["gpu0/processes"], known["gpu1/processes"]) == (1, 0)
        assert not any(name.endswith("/processes") for name in unknown if name.startswith("gpu"))
    finally:
        rank.communicate()


def test_samples_become_points_by_step_and_time_exactly_once(folder):
    (folder / FILE).write_text(
        '\n{"t": 5.0, "step": 1, "values": {"gpu0/power_w": 90.0}, "events": {"gpu0: Xid 79": 79.0}}\n'
        '\n{"t": 6.0, "step": 2, "values": {"gpu0/po'
    )
    server = Server()
    server.fails = [ConnectionError()]
    running = stream(folder, server)
    with pytest.raises(ConnectionError):
        done(running.step())
    done(running.step())
    with (folder / FILE).open("a") as file:  # the torn line is ended by the next sample
        file.write('\n{"t": 7.0, "step": 3, "values": {"gpu0/power_w": 95.0}}\n')
    done(stream(folder, server).step())  # the worker was restarted
    done(running.step())  # and the one before it was not quite dead
    assert server.points == {
        "gpu0/power_w": [(1, 90.0, 5.0), (3, 95.0, 7.0)],
        "event/gpu0: Xid 79": [(1, 79.0, 5.0)],
    }
    assert server.offset == (folder / FILE).stat().st_size


def test_lines_that_are_no_samples_are_passed_over(folder):
    (folder / FILE).write_text('[1]\nnot json\n{"t": "now", "step": 1, "values": {"a": 1.0}}\n{"values": 3}\n')
    server = Server()
    done(stream(folder, server).step())
    assert (server.points, server.offset) == ({}, (folder / FILE).stat().st_size)
