"""What a node says of its warm start, and that it takes memory only where there is enough."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from worker.launch import warm as supervisors
from worker.launch.warm import (
    NO_MEMORY,
    NO_TORCHRUN,
    NOT_READY,
    PREPARING,
    READY,
    Supervisors,
    default_launch,
)
from worker.node.attempt_files import WARM_FILE
from worker.warm.rankzero_warm.ranks import HANDLERS


def test_switched_off_it_prepares_nothing_and_says_so(tmp_path: Path):
    off = Supervisors(tmp_path, is_warm=False)
    off.want(default_launch(sys.executable, 1))
    off.prepare()
    assert off.status == "off" and not (tmp_path / "node").exists()


def test_where_memory_is_short_nothing_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    warm = Supervisors(tmp_path, is_warm=True)
    warm.want(default_launch(sys.executable, 1))
    assert warm.status == PREPARING
    monkeypatch.setattr(supervisors, "_free_memory_bytes", lambda: supervisors.FREE_BYTES - 1)
    warm.prepare()
    assert warm.status == NO_MEMORY and not (tmp_path / "node").exists()


def test_a_torch_that_cannot_be_imported_is_said_and_not_tried_again(tmp_path: Path):
    warm = importing(tmp_path, "raise ImportError('libcudart.so.12 is missing')\n")
    try:
        warm.prepare()
        assert warm.status == "torch could not be imported ahead"
        first = warm._process
        warm.prepare()
        assert warm._process is first
        assert "libcudart.so.12 is missing" in (tmp_path / "node" / "warm.log").read_text()
    finally:
        warm.close()


EMPTY_TORCH = f"""import sys, threading, types
for name in ("_dynamo", "distributed", "distributed.run", "nn", "nn.parallel", "nn.parallel.distributed",
             "utils", "utils.data"):
    sys.modules["torch." + name] = types.ModuleType("torch." + name)
sys.modules[{HANDLERS!r}] = types.SimpleNamespace(SubprocessHandler=types.SimpleNamespace(_popen=None))
"""
"""A torch without anything, which can be forked from."""


@pytest.mark.parametrize(
    ("leaves", "problem"),
    [
        ("threading.Thread(target=threading.Event().wait, daemon=True).start()", "starts a thread"),
        ("kept = open('/dev/null')", "opens a file"),
    ],
)
def test_a_torch_whose_import_leaves_what_a_fork_would_lack_or_share_is_not_forked_from(
    tmp_path: Path, leaves: str, problem: str
):
    warm = importing(tmp_path, EMPTY_TORCH + leaves)
    try:
        warm.prepare()
        assert warm.status.startswith(f"importing torch {problem} here")
    finally:
        warm.close()


def test_a_process_that_is_ready_ends_where_memory_gets_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    warm = importing(tmp_path, EMPTY_TORCH)
    try:
        warm.prepare()
        assert warm.status.startswith(READY) and warm._process is not None
        assert psutil.Process(warm._process._process.pid).net_connections("inet") == [], "it opens no port"
        monkeypatch.setattr(supervisors, "_free_memory_bytes", lambda: (1 << 30) - 1)
        warm.prepare()
        assert warm._process is None and warm.status == NO_MEMORY
    finally:
        warm.close()


def test_nothing_is_forked_once_the_workers_limits_or_the_packages_have_changed(tmp_path: Path):
    warm = importing(tmp_path, EMPTY_TORCH)
    try:
        warm.prepare()
        process, launch = warm._process, default_launch(sys.executable, 1)
        assert process is not None and process.obstacle(launch, process.env) == ""
        umask = os.umask(0o067)
        try:
            assert process.obstacle(launch, process.env) == "the worker's limits have changed"
        finally:
            os.umask(umask)
        (tmp_path / "path" / "installed").mkdir()
        assert process.obstacle(launch, process.env) == "the interpreter's packages have changed"
    finally:
        warm.close()


def test_a_process_that_was_killed_while_it_imported_torch_is_prepared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisors, "QUIET_S", 0.0)
    warm = importing(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    try:
        warm.prepare()
        assert warm.status == PREPARING
        first = warm._process
        warm.prepare()
        assert warm._process is not first and warm.status == PREPARING
    finally:
        warm.close()


def test_a_launch_waits_for_the_torch_that_is_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    may_end = tmp_path / "may end"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(may_end)!r}).exists(): time.sleep(0.02)\n"
    warm = importing(tmp_path, wait + "raise ImportError('no such library')\n")
    preparing = threading.Thread(target=warm.prepare)
    preparing.start()
    try:
        while warm._process is None:
            time.sleep(0.01)
        node = launched(tmp_path)
        assert warm.spawn(node, "abcdefghij", 1, {}) is None
        assert not warm._is_awaited(launched(tmp_path, "--standalone", "--nnodes=2"), {})
        assert not warm._is_awaited(launched(tmp_path, "torchrun", "accelerate"), {})
        with monkeypatch.context() as late:
            late.setattr(supervisors, "IMPORT_LIMIT_S", 0.0)
            assert not warm._is_awaited(launched(tmp_path), {})
        secret = {"MKL_NUM_STRIPES": "00000002"}
        assert not warm._is_awaited(node, secret) and warm._fork([], node, node / "log", secret) is None
        assert "because MKL_NUM_STRIPES has changed" in (node / WARM_FILE).read_text()
        may_end.touch()
        preparing.join()
        assert not warm._is_awaited(launched(tmp_path), {})
    finally:
        may_end.touch()
        preparing.join()
        warm.close()


def launched(tmp_path: Path, part: str = "", other: str = "") -> Path:
    """The folder of an attempt like those that `importing` prepares for, with another part in its command."""
    folder = tmp_path / "node0"
    folder.mkdir(exist_ok=True)
    launch = default_launch(sys.executable, 1)
    argv = [argument.replace(part, other) if part else argument for argument in launch["argv"]]
    env = launch["env"] | {"PYTHONPATH": str(tmp_path / "path"), "RANKZERO_PROBE_DIR": str(folder / "probe")}
    (folder / "launch.json").write_text(json.dumps({"argv": argv, "env": env, "launcher": "torchrun"}))
    return folder


def importing(tmp_path: Path, source: str) -> Supervisors:
    """Supervisors that prepare for launches whose torch is this source."""
    torch = tmp_path / "path" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text(source)
    warm = Supervisors(tmp_path, is_warm=True)
    launch = default_launch(sys.executable, 1)
    warm.want(launch | {"env": launch["env"] | {"PYTHONPATH": str(torch.parent)}})
    return warm


def test_a_default_python_that_cannot_train_is_said_until_a_run_brings_another(tmp_path: Path):
    warm = Supervisors(tmp_path, is_warm=True)
    warm.want(default_launch(str(tmp_path / "no-python"), 1))
    warm.prepare()
    assert warm.status == NO_TORCHRUN
    warm.want(default_launch(sys.executable, 1))
    assert warm.status == PREPARING


def test_an_interpreter_that_cannot_be_started_is_said(tmp_path: Path):
    python, torchrun = tmp_path / "python", tmp_path / "torchrun"
    torchrun.write_text(f"#!{python}\n")
    for program in (python, torchrun):
        program.touch()
        program.chmod(0o755)
    warm = Supervisors(tmp_path, is_warm=True)
    warm.want({"argv": [str(torchrun)], "env": {}})
    warm.prepare()
    assert warm.status.startswith(f"{NOT_READY}: ") and warm.status not in (PREPARING, NO_MEMORY)
