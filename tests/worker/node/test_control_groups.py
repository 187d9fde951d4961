"""The kernel's count of kills for memory, from control groups of both versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from domain.messages import Reason
from worker.attempt.reports import end_of
from worker.node import control_groups

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


def machine(folder: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A /proc of our own whose mounts lie below the folder."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(cgroup)
    (proc / "self" / "mounts").write_text(mounts.replace("/sys", f"{folder}/sys"))
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc


EVENTS = "low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\noom_group_kill 0\n"
OOM_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"
MOUNT_V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
MOUNT_V1 = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"


def test_version_2_counts_in_its_own_group_and_takes_the_tightest_limit_above(tmp_path):
    files = {
        "sys/fs/cgroup/jobs/a/memory.events": EVENTS,
        "sys/fs/cgroup/jobs/a/memory.max": "max\n",
        "sys/fs/cgroup/jobs/memory.max": "4294967296\n",
    }
    proc = machine(tmp_path, "0::/jobs/a\n", MOUNT_V2, files)
    assert control_groups.out_of_memory_kills(proc) == 3
    assert control_groups.memory_limit_bytes(proc) == 4 << 30


def test_the_page_cache_of_a_group_is_free(tmp_path):
    version_2 = {
        "sys/fs/cgroup/jobs/memory.max": "1000\n",
        "sys/fs/cgroup/jobs/memory.current": "900\n",
        "sys/fs/cgroup/jobs/memory.stat": "anon 500\ninactive_file 100\nactive_file 50\n",
        "sys/fs/cgroup/jobs/a/memory.max": "max\n",
    }
    assert control_groups.free_memory_bytes(machine(tmp_path / "2", "0::/jobs/a\n", MOUNT_V2, version_2)) == 250
    version_1 = {
        "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "900\n",
        "sys/fs/cgroup/memory/x/memory.stat": "total_inactive_file 30\ntotal_active_file 0\n",
    }
    assert control_groups.free_memory_bytes(machine(tmp_path / "1", "4:memory:/x\n", MOUNT_V1, version_1)) == 130
    assert control_groups.free_memory_bytes(machine(tmp_path / "0", "0::/\n", MOUNT_V2, {})) is None


def test_a_container_sees_its_group_as_the_root(tmp_path):
    files = {"sys/fs/cgroup/memory.events": EVENTS, "sys/fs/cgroup/memory.max": "1073741824\n"}
    proc = machine(tmp_path, "0::/../../not/visible\n", MOUNT_V2, files)
    assert control_groups.out_of_memory_kills(proc) == 3
    assert control_groups.memory_limit_bytes(proc) == 1 << 30


def test_version_1_is_read_also_beside_an_empty_version_2(tmp_path):
    files = {
        "sys/fs/cgroup/memory/docker/x/memory.oom_control": OOM_CONTROL,
        "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "9223372036854771712\n",
    }
    mounts = MOUNT_V1 + MOUNT_V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified", 1)
    proc = machine(tmp_path, "4:memory:/docker/x\n1:cpu:/docker/x\n0::/\n", mounts, files)
    assert control_groups.out_of_memory_kills(proc) == 5
    assert control_groups.memory_limit_bytes(proc) is None


def test_without_groups_the_machine_counts(tmp_path):
    proc = machine(tmp_path, "0::/\n", MOUNT_V2, {"proc/vmstat": "nr_free_pages 1\noom_kill 7\n"})
    assert control_groups.out_of_memory_kills(proc) == 7


def test_a_kernel_that_does_not_tell_is_no_harm(tmp_path):
    assert control_groups.out_of_memory_kills(tmp_path) is None
    assert control_groups.memory_limit_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("150000 100000\n", 1.5),
        ("max 100000\n", None),
        ("-1 100000", None),
        ("", None),
        ("50000 100000", 0.5),
    ],
)
def test_a_quota_is_cores(text: str, cores: float | None):
    assert control_groups.quota_cores(text) == cores


def test_version_2_has_the_quota_of_each_group_and_what_it_used(tmp_path):
    files = {
        "sys/fs/cgroup/jobs/a/cpu.max": "max 100000\n",
        "sys/fs/cgroup/jobs/cpu.max": "250000 100000\n",
        "sys/fs/cgroup/jobs/cpu.stat": "usage_usec 12500000\nuser_usec 12000000\n",
    }
    proc = machine(tmp_path, "0::/jobs/a\n", MOUNT_V2, files)
    assert control_groups.cpu_quotas(proc) == [control_groups.CpuQuota(2.5, 12.5)]


@pytest.mark.parametrize("mounts", ["cpu,cpuacct", "cpu cpuacct"], ids=["one mount", "a mount each"])
def test_version_1_has_the_quota_of_the_group_that_a_container_sees(tmp_path, mounts: str):
    folders = {name: f"sys/fs/cgroup/{mount}" for mount in mounts.split() for name in mount.split(",")}
    lines = [f"cgroup /sys/fs/cgroup/{mount} cgroup rw,{mount} 0 0\n" for mount in mounts.split()]
    files = {
        f"{folders['cpu']}/cpu.cfs_quota_us": "400000\n",
        f"{folders['cpu']}/cpu.cfs_period_us": "100000\n",
        f"{folders['cpuacct']}/cpuacct.usage": "3000000000\n",
    }
    groups = "".join(f"{number}:{mount}:/docker/x\n" for number, mount in enumerate(mounts.split()))
    quotas = control_groups.cpu_quotas(machine(tmp_path, groups, "".join(lines), files))
    assert set(quotas) == {control_groups.CpuQuota(4.0, 3.0)}


@pytest.fixture
def cpu_group():
    """A control group that may use half a core, where this machine lets us make one."""
    v1 = Path("/sys/fs/cgroup/cpu")
    folder = (v1 if v1.exists() else V2) / f"rankzero-{os.getpid()}"
    try:
        folder.mkdir()
        if v1.exists():
            (folder / "cpu.cfs_period_us").write_text("100000")
            (folder / "cpu.cfs_quota_us").write_text("50000")
        else:
            (folder / "cpu.max").write_text("50000 100000")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    folder.rmdir()


HALF_A_CORE = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
from worker.node.hardware import cores
print(cores())
"""


def test_in_a_real_group_of_half_a_core_there_is_one_core(cpu_group):
    root = Path(__file__).parents[3]
    argv = [sys.executable, "-c", HALF_A_CORE, str(cpu_group)]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["1"], done


@pytest.fixture
def group():
    """A control group of 64 MB, where this machine lets us make one."""
    if (V1 / "memory.limit_in_bytes").exists():
        folder, limit = V1 / f"rankzero-{os.getpid()}", "memory.limit_in_bytes"
    elif (V2 / "memory.max").exists() or (V2 / "cgroup.subtree_control").exists():
        folder, limit = V2 / f"rankzero-{os.getpid()}", "memory.max"
    else:
        pytest.skip("no memory control groups here")
    try:
        folder.mkdir()
        (folder / limit).write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    folder.rmdir()


GREEDY = """
import os, subprocess, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
from worker.node import control_groups
before = control_groups.out_of_memory_kills()
code = subprocess.run([sys.executable, "-c", "b = bytearray(256 << 20)"]).returncode
print(code, control_groups.out_of_memory_kills() - before, control_groups.memory_limit_bytes())
"""


def test_a_real_kill_is_counted(group):
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", GREEDY, str(group)], cwd=root, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["-9", "1", str(64 << 20)], done


def test_a_training_that_the_kernel_kills_for_memory_is_called_that(group, tmp_path):
    """The supervisor, the training below it and the report, in a control group that is too small."""
    folder = tmp_path / "node0"
    (folder / "work").mkdir(parents=True)
    order = {
        "argv": [sys.executable, "-c", "b = bytearray(256 << 20)"], "env": {}, "cwd": str(folder / "work"),
        "grace_s": 1, "launcher": "python", "first_rank": 0, "processes": 1,
    }  # fmt: skip
    (folder / "launch.json").write_text(json.dumps(order))
    join = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
    supervisor = [
        sys.executable,
        "-P",
        "-m",
        "worker.attempt.supervisor",
        "--data",
        "unused",
        "--attempt",
        "x/1",
    ]
    subprocess.run(["sh", "-c", join, str(group), *supervisor, str(folder)], check=True, timeout=300)
    state = json.loads((folder / "supervisor.json").read_text())
    report = end_of(folder, state, order, "n0", 0, shut_down=False)
    assert report.reason is Reason.OUT_OF_MEMORY
    assert report.message == (
        "rank 0 on n0 was killed by the kernel because memory ran out (SIGKILL; the limit here is 64.00 MiB)"
    )
    assert (report.next_step or "").startswith("Halve the batch per process")
