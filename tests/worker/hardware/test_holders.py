"""What holds a GPU is named; after an attempt its GPUs are waited for, and what is left is told."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from domain.health.holders import by_position, in_words
from tests.worker.node.fake_nvml import FakeNvml
from tests.worker.started import started
from worker.hardware.holders import LIMIT_S, DeviceRelease
from worker.node.hardware import GpuReader


@pytest.fixture
def left() -> Iterator[subprocess.Popen[bytes]]:
    """A process that a run has left, with a secret on its command line."""
    command = [sys.executable, "-c", "input()", "--api-key=sk-verysecret12345"]
    own = os.environ | {"RANKZERO_RUN_ID": "abcdefghij"}
    process = started(command, stdin=subprocess.PIPE, env=own)
    yield process
    process.communicate()


def reader(processes: dict[str, list[int]]) -> GpuReader:
    """GPUs with processes, each of which has a gibibyte."""
    nvml = FakeNvml()
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: [  # type: ignore[method-assign]
        SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in processes.get(handle, [])
    ]
    return GpuReader(nvml)


def test_what_an_ended_run_left_is_no_longer_ours(left):
    gpus = reader({"GPU-aaaa": [left.pid]})
    for live, foreign in ((None, False), ({"abcdefghij"}, False), ({"zzzzzzzzzz"}, True), ((), True)):
        assert [sample["foreign"] for sample in gpus.samples(live)] == [foreign, False]
    (holder,) = gpus.samples(())[0]["holders"]
    assert (holder["pid"], holder["user"], holder["run"]) == (left.pid, getpass.getuser(), "abcdefghij")
    assert "input()" in holder["command"] and "verysecret" not in holder["command"]
    told = in_words([holder])
    assert told.startswith(f"{getpass.getuser()}: {sys.executable}") and told.endswith(
        f"(process {left.pid}, 1 GiB), left of run abcdefghij"
    )


def test_a_program_that_checks_a_device_holds_it_for_nobody_else():
    own = os.environ | {"RANKZERO_CHECK": "1"}
    check = started([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=own)
    try:
        assert reader({"GPU-aaaa": [check.pid]}).samples(())[0]["foreign"] is False
    finally:
        check.communicate()


def test_a_process_of_another_namespace_is_named_as_far_as_it_is_known():
    gone = 2**22 + 1  # Linux has no such process
    (holder,) = reader({"GPU-aaaa": [gone]}).samples(())[0]["holders"]
    assert in_words([holder]) == f"a process that cannot be seen from here (process {gone}, 1 GiB)"
    assert in_words([{"memory_bytes": 5 << 30}]) == "a process that cannot be seen from here (5 GiB)"
    assert in_words([holder] * 5).endswith("; and 2 more processes")
    load = {"gpus": [{"id": "GPU-b", "foreign": True, "holders": [holder]}, {"id": "GPU-a", "foreign": False}]}
    assert [*by_position(["GPU-a", "GPU-b", "GPU-c"], load)] == [(1, in_words([holder]))]
    assert [*by_position(["GPU-a"], None)] == []


def test_the_end_of_an_attempt_waits_for_its_gpus_and_then_says_what_holds_them(left):
    processes = {"GPU-aaaa": [left.pid], "GPU-bbbb": []}
    release = DeviceRelease(["GPU-aaaa", "GPU-bbbb"], reader(processes))
    assert release.held(100.0) is None and release.held(100.0 + LIMIT_S / 2) is None
    (held,) = release.held(100.0 + LIMIT_S) or []
    assert held.device == "GPU-aaaa" and f"process {left.pid}" in held.holder
    processes["GPU-aaaa"].clear()
    assert DeviceRelease(["GPU-aaaa"], reader(processes)).held(100.0) == []
    assert DeviceRelease([], reader(processes)).held(100.0) == []
