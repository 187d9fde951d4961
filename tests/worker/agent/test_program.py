"""The worker as a program, beside a server on a real socket: what signals, locks and tokens do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from domain.assignments import Assignment
from domain.masking.masking import MASK
from domain.protocol import PROTOCOL
from domain.spec import RunSpec
from tests.worker.http_server import HttpServer
from tests.worker.real_node import WAITING
from worker.launch.preparation import masked_launch, training_environment
from worker.node import processes

pytestmark = pytest.mark.real

RUN = uuid.uuid4().hex[:10]


CHANGED = """
import runpy, sys
import {module}
{module}.{name} = 3600.0
sys.argv.insert(1, "worker")
runpy.run_module("cli.main", run_name="__main__", alter_sys=True)
"""
"""A worker that does something once an hour, or gives somebody an hour."""


class Program:
    """`python -m worker` on a private data directory."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.data = folder / "data"
        self.log = folder / "worker.log"
        self.process: subprocess.Popen | None = None

    def start(self, *options: str, token: str = "join-token", changed: str = "") -> subprocess.Popen:
        """`changed`: the name of a duration that is an hour instead."""
        module, _, name = changed.rpartition(".")
        how = ["-c", CHANGED.format(module=module, name=name)] if changed else ["-m", "worker"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
        command = [sys.executable, "-P", *how, "--server", self.url, "--data", str(self.data)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--slots", "2", *options], env=clean | {"RANKZERO_TOKEN": token}, stderr=log
            )
        return self.process

    def supervisor(self):
        try:
            return json.loads((self.data / f"runs/{RUN}/attempts/1/node0/supervisor.json").read_text())
        except OSError:
            return {"state": None}

    @property
    def ready(self) -> Path:
        """The file by which a waiting training says that it has begun, and without which it ends."""
        return self.data / f"runs/{RUN}/attempts/1/node0/work/ready"


@pytest.fixture
def server():
    running = HttpServer()
    yield running
    running.close()


@pytest.fixture
def program(tmp_path, server):
    started = Program(tmp_path, server.url)
    yield started
    if started.process:
        started.process.kill()
        started.process.wait()
    processes.kill_all(lambda: processes.of_attempt(RUN, 1, 0), 60)


LIMIT_S = 300.0


def until(condition, limit_s=LIMIT_S):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.01)
    raise AssertionError(f"not within {limit_s} s")


def assign(program, text, action="run"):
    script = program.folder / "train.py"
    script.write_text(text)
    spec = RunSpec(target=str(script), launcher="python", stop_grace_s=600)
    return Assignment(
        run_id=RUN, attempt=1, fence=1, node_rank=0, action=action, spec=spec, devices=[], device_kind="cpu"
    )


def training(program, server, text=WAITING, *options, **more):
    worker = program.start(*options, **more)
    server.assignments = [assign(program, text)]
    until(lambda: "running" in server.store.states() and program.ready.exists())
    return worker


def test_it_registers_and_says_how_loaded_the_node_is(program, server):
    server.is_behind_s = 5.0
    program.start("--name", "gpu-3", "--label", "room=b12")
    until(lambda: server.loads >= 2)
    facts = server.registered[0]
    assert (facts["name"], facts["labels"], facts["node_id"]) == ("gpu-3", {"room": "b12"}, None)
    until(lambda: server.last_load.get("clock_offset_s") is not None)
    load = server.last_load
    assert (load["address"], load["interface"]) == ("127.0.0.1", "lo")
    assert abs(load["clock_offset_s"] - 5) <= load["clock_error_s"] + 0.1
    assert (program.data / "node/node.json").stat().st_mode & 0o077 == 0


def test_sigterm_leaves_trainings_running_and_the_next_worker_finds_them(program, server):
    worker = training(program, server)
    pid = program.supervisor()["launcher_pid"]
    worker.terminate()
    assert worker.wait(LIMIT_S) == 0
    assert program.supervisor()["launcher_pid"] == pid and processes.find(pid)
    program.start()
    until(lambda: len(server.registered) >= 2)
    assert server.registered[1]["node_id"] == "n1"
    program.ready.unlink()
    until(lambda: server.store.end())
    assert server.store.end().state == "succeeded"


def test_sigterm_with_stop_runs_ends_them_and_lets_the_server_know(program, server):
    patient = "worker.agent.worker.ACKNOWLEDGE_LIMIT_S"
    worker = training(program, server, WAITING, "--stop-runs", changed=patient)
    worker.terminate()
    assert worker.wait(LIMIT_S) == 0
    assert (server.store.end().state, server.store.end().message) == ("stopped", "the worker was shut down")
    assert processes.of_attempt(RUN, 1, 0) == []


def test_a_second_sigterm_does_not_wait_for_the_run_to_save(program, server):
    text = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITING
    patient = "worker.agent.worker.SHUTDOWN_GRACE_S"
    worker = training(program, server, text, "--stop-runs", changed=patient)
    worker.terminate()
    until(lambda: program.supervisor()["state"] == "stopping")
    worker.terminate()
    assert worker.wait(LIMIT_S) == 0
    assert processes.of_attempt(RUN, 1, 0) == []


def test_kill_9_of_the_worker_leaves_trainings_running(program, server):
    training(program, server).kill()
    program.process.wait()
    pid = program.supervisor()["launcher_pid"]
    program.start()
    until(lambda: len(server.registered) >= 2)
    assert program.supervisor()["launcher_pid"] == pid and processes.find(pid)


def test_a_second_worker_on_the_same_data_says_why_it_leaves(program, server):
    first = program.start()
    until(lambda: server.registered)
    second = program.start()
    assert second.wait(LIMIT_S) == 1
    assert f"another worker already uses {program.data}" in program.log.read_text()
    program.process = first
    assert first.poll() is None


def test_a_node_that_is_refused_says_why_it_leaves(program, server):
    server.refuses_nodes = True
    assert program.start().wait(LIMIT_S) == 1
    assert "refuses this node: the name is taken" in program.log.read_text()


def test_a_node_that_has_joined_needs_no_join_token_any_more(program, server):
    program.start()
    until(lambda: server.loads)
    program.process.kill()
    program.process.wait()
    program.start(token="")
    until(lambda: len(server.registered) >= 2)
    assert [(one["bearer"], one["node_id"]) for one in server.registered] == [
        ("join-token", None),
        ("node-token", "n1"),
    ]


def test_a_node_whose_own_token_is_not_known_any_more_joins_again(program, server):
    program.start()
    until(lambda: server.loads)
    program.process.kill()
    program.process.wait()
    server.knows_nodes = False
    program.start()
    until(lambda: len(server.registered) >= 2)
    assert (server.registered[1]["bearer"], server.registered[1]["node_id"]) == ("join-token", "n1")
    program.process.kill()
    program.process.wait()
    assert program.start(token="").wait(LIMIT_S) == 1
    assert "it no longer knows this node's own token, and a token is needed" in program.log.read_text()


def test_an_expired_join_token_is_told_and_not_tried_for_ever(program, server):
    assert program.start(token="rzjoin-old").wait(LIMIT_S) == 1
    assert "refuses this node: This join token expired." in program.log.read_text()


def test_a_removed_node_says_so_and_leaves(program, server):
    worker = program.start()
    until(lambda: server.loads)
    server.has_removed_node = True
    assert worker.wait(LIMIT_S) == 1
    assert "rankzero worker: Node gpu-3 was removed." in program.log.read_text()


@pytest.mark.long
def test_a_node_that_is_another_workers_now_ends_what_it_trains(program, server):
    worker = training(program, server)
    server.has_removed_node = True
    time.sleep(2)
    assert processes.of_attempt(RUN, 1, 0) != []  # a server may be wrong for a moment
    assert worker.wait(LIMIT_S) == 1
    assert processes.of_attempt(RUN, 1, 0) == []


def test_without_a_token_it_says_where_to_get_one(program, server):
    assert program.start(token="").wait(LIMIT_S) == 1
    assert "rankzero token --join" in program.log.read_text()


ONE_AT_A_TIME = """
import pathlib, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("runs/a")
for step in range(6):
    value = Summary.Value(tag="train/loss", simple_value=step * 0.5)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.flush()
    while not pathlib.Path(f"go{step}").exists():
        time.sleep(0.01)
writer.close()
"""
"""Writes event files as torch's SummaryWriter does, without importing torch."""


def test_a_watched_run_shows_its_points_at_once(program, server):
    server.watched = True
    program.start(changed="worker.attempt.uploader.UNWATCHED_EVERY_S")
    server.assignments = [assign(program, ONE_AT_A_TIME)]
    for step in range(6):
        until(lambda step=step: [step] in server.batches["train/loss"])
        program.ready.with_name(f"go{step}").touch()
    until(lambda: server.store.end())
    assert server.batches["train/loss"] == [[step] for step in range(6)]


def test_the_trainings_environment_has_no_secret_and_no_launcher_of_ours():
    own = {"RANKZERO_TOKEN": "x", "RANK": "1", "TORCHELASTIC_RUN_ID": "y", "PATH": "/bin", "MASTER_PORT": "1"}
    assert training_environment(own) == {"PATH": "/bin"}
    handed_on = {"AWS_ACCESS_KEY_ID": "k", "PGPASSWORD": "p"}
    assert training_environment(handed_on | {"RANKZERO_DATABASE_URL": "postgresql://u:p@h/d"}) == handed_on


def test_no_process_of_a_training_has_a_token_among_its_variables_or_arguments(program, server):
    reading = "import os, pathlib\nown, parent = os.getpid(), os.getppid()\n"
    reading += "read = lambda pid, what: pathlib.Path(f'/proc/{pid}/{what}').read_text()\n"
    reading += "print([read(pid, what) for pid in (own, parent) for what in ('environ', 'cmdline')])\n"
    program.start()
    server.assignments = [assign(program, reading).model_copy(update={"token": "attempt-token"})]
    until(lambda: server.store.end())
    log = (program.data / f"runs/{RUN}/attempts/1/node0/logs/rank0.out").read_text()
    assert f"RANKZERO_RUN_ID={RUN}" in log and "worker.attempt.supervisor" in log
    assert "join-token" not in log and "node-token" not in log and "attempt-token" not in log


def test_a_command_is_reported_without_its_secrets():
    launch = {"argv": ["t.py", "--api-key=x", "--lr=1"], "env": {"HF_TOKEN": "x", "MONKEY": "m"}, "cwd": "/w"}
    assert masked_launch(launch) == {
        "argv": ["t.py", f"--api-key={MASK}", "--lr=1"], "env": {"HF_TOKEN": MASK, "MONKEY": "m"}, "cwd": "/w",
    }  # fmt: skip


def test_a_worker_skips_what_it_cannot_read_and_its_node_says_so(program, server):
    program.start()
    readable = assign(program, WAITING)
    strange = readable.model_dump() | {"run_id": "abcdefghij", "action": "pause", "fence": 99}
    server.assignments = [strange, readable]
    until(lambda: "running" in server.store.states())
    until(lambda: "cannot read the assignment of run abcdefghij" in (server.last_load.get("notice") or ""))
    until(lambda: "cannot read the assignment of run abcdefghij" in program.log.read_text())


@pytest.mark.parametrize(
    "protocol", [*(pytest.param(other, marks=pytest.mark.long) for other in (None, 1)), PROTOCOL + 1]
)
def test_beside_a_dashboard_of_another_version_trainings_go_on_and_nothing_new_begins(program, server, protocol):
    worker = training(program, server)
    worker.terminate()
    worker.wait()
    server.protocol = protocol
    again = program.start()
    until(lambda: len(server.registered) >= 2)
    known = server.assignments[0]
    fresh = known.model_copy(update={"run_id": "zzzzzzzzzz", "fence": 2})
    server.assignments = [known, fresh]
    until(lambda: server.store.end(2) is not None)
    assert "different versions" in server.store.end(2).message
    which = "this worker" if protocol == PROTOCOL + 1 else "the dashboard"
    assert f"upgrade {which}: the dashboard is" in program.log.read_text()
    until(lambda: f"upgrade {which}" in (server.last_load.get("notice") or ""))
    assert server.store.end(1) is None and program.supervisor()["state"] == "running"
    server.assignments = [known.model_copy(update={"action": "stop"}), fresh]
    until(lambda: server.store.end(1) is not None)
    assert server.store.end(1).state == "stopped"
    again.terminate()
