"""`rankzero up` as a person uses it: what it prints, what survives it, and what it leaves behind (nothing)."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.product import WAIT_S, Product, safely, wait_for
from worker.node.processes import AUTOGROUP
from worker.node.standing_back import DASHBOARD_NICENESS, WORKER_NICENESS

STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if "--deaf" in sys.argv else lambda *_: sys.exit("saved"))
print("training", flush=True)
while True:
    time.sleep(0.05)
"""
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)(/\S*)[?&]token=(\S+)")


class Up(Product):
    """The product started by hand, so that what it prints and its end can be looked at."""

    def up(self, *options: str) -> None:
        """Start it, and wait for the address."""
        argv = [sys.executable, "-P", "-m", "cli.main", "up", "--port", str(self.port)]
        argv += ["--data", str(self.data), "--slots", "2", *options]
        self.log.write_text("")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=self.env, start_new_session=True)
        wait_for(lambda: self.ended() or ADDRESS.search(self.tail()), "the address", 300, self.tail)
        assert not self.ended(), self.tail()

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        assert self.process is not None
        return self.process.poll() is not None

    def deaf(self, *args: str) -> tuple[str, psutil.Process]:
        """A run of one process that trains until it is told to end; its id and process."""
        script = self.data.parent / "stubborn.py"
        script.write_text(STUBBORN)
        run_id = self.launch(script, strategy="single", gpus_per_node=1, args=list(args))
        self.wait_state(run_id, "running")
        (process,) = wait_for(lambda: carriers(run_id), "its process")
        wait_for(lambda: "training" in self.output(run_id), "its first line")
        return run_id, process

    def output(self, run_id: str) -> str:
        """What the run printed on this machine's disk."""
        return "".join(p.read_text() for p in self.data.glob(f"runs/{run_id}/attempts/*/node0/logs/rank0.out"))


def carriers(run_id: str) -> list[psutil.Process]:
    """Training processes of a run."""
    alive = [p for p in psutil.process_iter() if safely(p.status, "zombie") != "zombie"]
    return [p for p in alive if safely(p.environ, {}).get("RANKZERO_RUN_ID") == run_id]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    product = Up(tmp_path / "data")
    try:
        yield product
    finally:
        product.clean_up()
        if product.process is not None:
            product.process.wait(WAIT_S)


@pytest.mark.real
def test_ctrl_c_ends_the_runs_and_leaves_no_process(up: Up) -> None:
    up.up()
    run_id, process = up.deaf()
    assert up.stop() == 0
    printed = up.tail()
    assert "stopping 1 run: SIGTERM sent, up to 15 s" in printed and printed.endswith("Stopped.\n")
    assert not process.is_running()
    assert up.token() not in (up.data / "dashboard.log").read_text() + (up.data / "worker.log").read_text()

    up.up()  # a second start finds its data
    up.wait_state(run_id, "stopped")  # a busy dashboard hears of it from the next worker
    assert up.stop() == 0
    assert "stopping" not in up.tail()


@pytest.mark.real
@pytest.mark.long
def test_a_second_ctrl_c_ends_all_of_it_at_once(up: Up) -> None:
    up.up()
    run_id, process = up.deaf("--deaf")
    assert up.process is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        up.process.send_signal(number)  # `make` and process groups repeat what they get
    wait_for(lambda: "stopping 1 run" in up.tail(), "the first Ctrl-C to be noticed")
    time.sleep(0.5)  # as fast as a person presses it again; what comes at once is the same Ctrl-C, repeated
    assert process.is_running()
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(WAIT_S) == 130
    wait_for(lambda: not up.processes() and not carriers(run_id), "every process to be gone")


@pytest.mark.real
@pytest.mark.long
def test_killed_and_started_again_it_finds_what_still_trains(up: Up) -> None:
    up.up()
    run_id, process = up.deaf()
    assert up.process is not None
    up.process.kill()
    up.process.wait()
    wait_for(lambda: not up.child("dashboard") and not up.child("worker"), "its children to die with it")
    assert process.is_running() and process.status() != psutil.STATUS_ZOMBIE

    up.up()
    wait_for(lambda: up.run(run_id)["state"] == "running" and not up.run(run_id)["lost_contact"], "the run")
    assert carriers(run_id) == [process]
    up.request("POST", f"/api/runs/{run_id}/stop")
    assert up.wait_state(run_id)["state"] == "stopped"
    assert up.stop() == 0


@pytest.mark.real
@pytest.mark.long  # test_kills kills both of them beneath a training
@pytest.mark.parametrize("name", ["dashboard", "worker"])
def test_a_child_that_is_killed_is_started_again(up: Up, name: str) -> None:
    up.up()
    wait_for(lambda: up.child(name), "the child")
    before = up.child(name)
    assert before is not None
    before.kill()
    wait_for(lambda: (now := up.child(name)) and now != before and now.cmdline(), "a new one")
    assert f"{name} ended (SIGKILL" in up.tail()
    assert up.get("/api/runs") == []
    assert up.stop() == 0


@pytest.mark.real
def test_up_names_what_stands_in_its_way(up: Up) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", up.port))
        other.listen()
        assert refused(up) == f"Port {up.port} is taken by another program; choose one with --port (0: any free one).\n"
    up.up("--no-worker")
    sentence = refused(up)
    assert f"Rankzero already runs on {up.data} ({up.url})" in sentence and "--data" in sentence
    assert up.child("worker") is None
    assert up.stop() == 0


def refused(up: Up) -> str:
    """What a start that cannot work says; it ends by itself with exit code 1."""
    argv = [sys.executable, "-P", "-m", "cli.main", "up", "--port", str(up.port), "--data", str(up.data)]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, env=up.env)
    assert (result.returncode, result.stdout) == (1, "") and result.stderr.count("\n") == 1
    return result.stderr


Weight = tuple[int, int, int]
"""Nice values of a process and of its session, and its scheduling policy."""


def weight(process: psutil.Process) -> Weight:
    """The weight of a process; where the kernel does not divide the cores by session, that of its session is 0."""
    session = Path(f"/proc/{process.pid}/autogroup")
    niceness = int(session.read_text().split()[-1]) if session.exists() else 0
    return process.nice(), niceness, os.sched_getscheduler(process.pid)


def weights(up: Up) -> list[Weight | None]:
    """Those of dashboard and worker; None for one that is being started."""
    children = [up.child(name) for name in ("dashboard", "worker")]
    return [child and safely(lambda child=child: weight(child), None) for child in children]


FULL = (os.nice(0), 0, os.SCHED_OTHER)
LESS = [
    (os.nice(0), DASHBOARD_NICENESS if AUTOGROUP.exists() else 0, os.SCHED_BATCH),
    (os.nice(0), WORKER_NICENESS if AUTOGROUP.exists() else 0, os.SCHED_OTHER),
]
"""The weights of a dashboard and a worker beside ranks of theirs."""


@pytest.mark.real
def test_dashboard_and_worker_stand_back_for_their_own_ranks_and_only_while_they_run(up: Up, tmp_path: Path) -> None:
    other = Up(tmp_path / "other")
    try:
        up.up()
        other.up()
        assert weights(up) == [FULL, FULL]
        run_id, rank = up.deaf()
        wait_for(lambda: weights(up) == LESS, "both to stand back", explain=up.tail)
        assert weight(rank) == FULL
        before = up.child("worker")
        assert before is not None
        before.kill()
        wait_for(lambda: up.child("worker") not in (None, before) and weights(up) == LESS, "the next worker, too")
        assert weights(other) == [FULL, FULL], "its ranks are none of ours"
        up.request("POST", f"/api/runs/{run_id}/stop")
        wait_for(lambda: weights(up) == [FULL, FULL], "their full weight after the run", explain=up.tail)
        assert other.stop() == up.stop() == 0
    finally:
        other.clean_up()


def test_the_demo_trains_on_two_ranks_and_is_launched_once(up: Up) -> None:
    up.up("--demo")
    match = ADDRESS.search(up.tail())
    assert match is not None and match[3] == up.token()
    run_id = match[2].removeprefix("/run?id=")
    assert up.run(run_id)["world_size"] == 2
    up.wait_step(run_id, 3)
    ranks = up.ranks(run_id)
    assert len(ranks) == 2
    assert {weight(rank) for rank in ranks.values()} == {FULL}
    up.yield_cores(run_id)
    assert up.process is not None
    up.process.kill()
    up.process.wait()
    up.up("--demo")
    again = ADDRESS.search(up.tail())
    assert again is not None and again[2] == f"/run?id={run_id}"
    assert len(up.get("/api/runs")) == 1
    wait_for(lambda: weights(up) == LESS, "both to stand back for ranks that they did not start", explain=up.tail)
    assert up.stop() == 0
    assert carriers(run_id) == []
