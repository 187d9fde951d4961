"""An older copy of the store is put back: no training ends for it, nothing is mixed up, a person decides."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import main
from dashboard.backups.taking import take_backup
from tests.dashboard.backups.backed_up import restore as restore_backup
from tests.dashboard.running import Running, running
from tests.end_to_end.product import free_port, wait_for
from tests.worker.checkpoints.checkpoint_node import zip_bytes
from tests.worker.streams.event_bytes import scalar
from worker.node import processes

TRAINING = """
import pathlib, time
pathlib.Path("ready").touch()
while pathlib.Path("ready").exists():
    time.sleep(0.02)
"""
LIMIT_S = 120.0
LONG = pytest.mark.long
"""Each of the two ways once in `make test`, each test in both ways among the long ones."""


class Machine:
    """A worker as a program, which outlives the dashboards it meets; they all listen at one port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.log = folder / "worker.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.runs: list[str] = []

    def start(self, dashboard: Running) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
        command = [
            sys.executable,
            "-P",
            "-m",
            "worker",
            "--server",
            dashboard.url,
            "--data",
            str(self.folder / "w"),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--slots", "2", "--name", "n0"],
                env=clean | {"RANKZERO_TOKEN": dashboard.join_token},
                stderr=log,
            )
        wait_for(lambda: nodes(dashboard), "the worker to join", LIMIT_S)

    def launch(self, dashboard: Running) -> str:
        script = self.folder / "code" / "train.py"  # apart from the data of dashboard and worker, which change
        script.parent.mkdir(exist_ok=True)
        script.write_text(TRAINING)
        run_id = dashboard.launch(target=str(script), launcher="python")
        self.runs.append(run_id)
        wait_for(lambda: dashboard.run(run_id)["state"] == "running", f"{run_id} to run", LIMIT_S)
        return run_id

    def work(self, run_id: str) -> Path:
        """The working directory of a run's first attempt."""
        return self.folder / "w/runs" / run_id / "attempts/1/node0/work"

    def train(self, run_id: str, steps: range) -> None:
        """Let the training log these steps, and save a checkpoint with the last one."""
        (self.work(run_id) / "logged").mkdir(exist_ok=True)
        with (self.work(run_id) / "logged/events.out.tfevents.1.host.1.0").open("ab") as events:
            events.write(b"".join(scalar(step, step * 0.5) for step in steps))
        (self.work(run_id) / f"ckpt_{steps[-1]}.pt").write_bytes(zip_bytes())

    def trains(self, run_id: str, attempt: int = 1) -> bool:
        return bool(processes.of_attempt(run_id, attempt, 0))

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for run_id in self.runs:
            for attempt in (1, 2):
                processes.kill_all(lambda r=run_id, a=attempt: processes.of_attempt(r, a, 0), 10)  # type: ignore[misc]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    it = Machine(tmp_path)
    yield it
    it.close()


def nodes(dashboard: Running) -> list[dict[str, Any]]:
    return [dict(node) for node in dashboard.http.get("/api/nodes").json()]


def unknown(dashboard: Running) -> list[dict[str, Any]]:
    return [one for node in nodes(dashboard) for one in node["unknown"]]


def by_backup(dashboard: Running, target: Path) -> None:
    """As `rankzero backup` does it."""
    dashboard.service.store.backup(target)


def by_copy(dashboard: Running, target: Path) -> None:
    """As somebody does it who copies the file: the copy takes itself for the store."""
    with (
        sqlite3.connect(dashboard.service.settings.data / "rankzero.db") as origin,
        sqlite3.connect(target) as copy,
    ):
        origin.backup(copy)
    copy.close()
    origin.close()


def restore(data: Path, copy: Path) -> None:
    for leftover in data.glob("rankzero.db-*"):
        leftover.unlink()
    shutil.copy(copy, data / "rankzero.db")


@pytest.mark.real
@pytest.mark.parametrize("made", [by_backup, pytest.param(by_copy, marks=LONG)])
def test_training_goes_on_beside_an_older_store_until_it_is_ended(
    machine: Machine,
    tmp_path: Path,
    made: Callable[[Running, Path], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = free_port()
    with running(machine.data, on_port=True, port=port) as before:
        machine.start(before)
        known = machine.launch(before)
        made(before, tmp_path / "copy.db")
        younger = machine.launch(before)
        store = before.service.lineage.identity
    restore(machine.data, tmp_path / "copy.db")
    with running(machine.data, on_port=True, port=port) as after:
        (held,) = wait_for(lambda: unknown(after), "the node to tell of its unknown training", LIMIT_S)
        assert (held["run_id"], held["attempt"], held["store"]) == (younger, 1, store)
        assert after.service.lineage.identity != store
        for words in (f"Run {younger}, attempt 1", "end-unknown n0", store):
            assert words in held["message"]
        (node,) = nodes(after)
        assert (node["slots"], node["free"]) == (2, 0)
        waiting = after.launch(target="image_classifier")
        wait_for(lambda: "none is free" in after.run(waiting)["waiting_for"], "why it waits")
        assert after.run(known)["state"] == "running"
        assert machine.trains(known) and machine.trains(younger)
        after.http.post(f"/api/runs/{known}/stop")
        wait_for(lambda: after.run(known)["state"] == "stopped", "a free slot", LIMIT_S)
        after.http.post(f"/api/runs/{waiting}/stop")
        again = machine.launch(after)  # its number is that of the training that the store does not know
        assert machine.trains(again) and machine.trains(younger)
        monkeypatch.setenv("RANKZERO_URL", after.url)
        monkeypatch.setenv("RANKZERO_TOKEN", after.token)
        assert main.run(["nodes", "end-unknown", "n0", "zzzzzzzzzz"]) == 1
        assert main.run(["nodes", "end-unknown", "n0", younger]) == 0
        assert f"Node n0 ends run {younger}" in capsys.readouterr().out
        wait_for(lambda: not unknown(after), "the node to have let go", LIMIT_S)
        assert machine.trains(again) and not machine.trains(younger)
        assert (machine.folder / "w/runs" / younger / "attempts/1/node0/work/ready").exists()
        wait_for(lambda: nodes(after)[0]["free"] == 1, "its slot to be free")


@pytest.mark.real
def test_a_machine_is_deleted_and_restored_while_two_runs_train(machine: Machine, tmp_path: Path) -> None:
    port = free_port()
    with running(machine.data, on_port=True, port=port) as before:
        machine.start(before)
        runs = [machine.launch(before) for _ in range(2)]
        for run_id in runs:
            machine.train(run_id, range(5))
        wait_for(lambda: all(has_all(before, run_id, 5, [4]) for run_id in runs), "all of it", LIMIT_S)
        service = before.service
        taken = take_backup(service.settings, tmp_path / "backups", service.store.backup, service.clock())
        for run_id in runs:
            machine.train(run_id, range(5, 10))
        wait_for(lambda: all(has_all(before, run_id, 10, [4, 9]) for run_id in runs), "all of it", LIMIT_S)
    shutil.rmtree(machine.data)
    for run_id in runs:
        machine.train(run_id, range(10, 15))
    restore_backup(taken.path, machine.data)
    with running(machine.data, on_port=True, port=port) as after:
        assert after.token == before.token
        wait_for(lambda: all(has_all(after, run_id, 15, [4, 9, 14]) for run_id in runs), "all of it", LIMIT_S)
        assert all(machine.trains(run_id) for run_id in runs) and not unknown(after)
        for run_id in runs:
            (machine.work(run_id) / "ready").unlink()
            wait_for(lambda run_id=run_id: after.run(run_id)["state"] == "succeeded", "its end", LIMIT_S)
            assert has_all(after, run_id, 15, [4, 9, 14])


def has_all(dashboard: Running, run_id: str, count: int, checkpoints: list[int]) -> bool:
    """Whether each point is there, none of them twice, and each checkpoint complete."""
    series = dashboard.http.get(f"/api/runs/{run_id}/metrics").json()
    steps = [step for name, points in series.items() if name.endswith("train/loss") for step, _, _ in points]
    assert len(steps) == len(set(steps))
    listed = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    complete = sorted(one["step"] for one in listed if one["complete"])
    return steps == list(range(count)) and complete == checkpoints == sorted(one["step"] for one in listed)


@pytest.mark.long
def test_run_of_a_younger_store_is_whole_when_that_store_is_back(machine: Machine, tmp_path: Path) -> None:
    port = free_port()
    with running(machine.data, on_port=True, port=port) as before:
        machine.start(before)
        by_copy(before, tmp_path / "old.db")
        run_id = machine.launch(before)
    shutil.copy(machine.data / "rankzero.db", tmp_path / "new.db")
    restore(machine.data, tmp_path / "old.db")
    with running(machine.data, on_port=True, port=port) as older:
        wait_for(lambda: unknown(older), "the node to tell of its unknown training", LIMIT_S)
        (machine.folder / "w/runs" / run_id / "attempts/1/node0/work/ready").unlink()
        wait_for(lambda: unknown(older)[0]["devices"] == [], "the end to be seen", LIMIT_S)
    restore(machine.data, tmp_path / "new.db")
    with running(machine.data, on_port=True, port=port) as again:
        wait_for(lambda: again.run(run_id)["state"] == "succeeded", "its end to be delivered", LIMIT_S)
        wait_for(lambda: not unknown(again), "nothing to be unknown", LIMIT_S)


@pytest.mark.long
@pytest.mark.parametrize("made", [pytest.param(by_backup, marks=LONG), by_copy])
def test_a_number_given_twice_is_never_taken_for_the_same_attempt(
    machine: Machine, tmp_path: Path, made: Callable[[Running, Path], None]
) -> None:
    """Run X, attempt 2, fencing number 2: in both stores, and two different things."""
    port = free_port()
    with running(machine.data, on_port=True, port=port) as before:
        machine.start(before)
        run_id = machine.launch(before)
        before.http.post(f"/api/runs/{run_id}/stop")
        wait_for(lambda: before.run(run_id)["state"] == "stopped", "its end", LIMIT_S)
        made(before, tmp_path / "copy.db")
        before.http.post(f"/api/runs/{run_id}/resume", json={})
        wait_for(lambda: before.run(run_id)["state"] == "running", "attempt 2", LIMIT_S)
    restore(machine.data, tmp_path / "copy.db")
    with running(machine.data, on_port=True, port=port) as after:
        wait_for(lambda: unknown(after), "the node to tell of its unknown training", LIMIT_S)
        after.http.post(f"/api/runs/{run_id}/resume", json={})
        wait_for(lambda: after.run(run_id)["state"] == "failed", "the other attempt 2 to be refused", LIMIT_S)
        assert "end-unknown n0" in after.run(run_id)["message"]
        assert machine.trains(run_id, 2)
        after.http.post("/api/nodes/n0/end-unknown", json={"run": run_id})
        wait_for(lambda: not unknown(after), "the node to have let go", LIMIT_S)
        assert not machine.trains(run_id, 2)


@pytest.mark.real
def test_a_deleted_run_still_ends_on_a_node_that_was_away(machine: Machine) -> None:
    with running(machine.data, on_port=True) as dashboard:
        machine.start(dashboard)
        run_id = machine.launch(dashboard)
        with dashboard.service.store.write() as session:  # as if it had been written off meanwhile
            session.connection().exec_driver_sql("update attempts set state = 'failed', ended_at = 1")
            session.connection().exec_driver_sql("update tasks set state = 'failed'")
        assert dashboard.http.delete(f"/api/runs/{run_id}").status_code in (200, 204)
        wait_for(lambda: not machine.trains(run_id), "what is left of a deleted run to end", LIMIT_S)
        assert unknown(dashboard) == []
