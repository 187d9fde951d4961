"""A torchrun forked from a process that has torch imported is, to a script, the same as one that was started."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from domain.launch.plan import PROBE_FOLDER
from worker.attempt.reports import end_of
from worker.launch.warm import IS_WARM, READY, Supervisors
from worker.node import processes

pytestmark = pytest.mark.real

OBSERVE = Path(__file__).parents[1] / "scripts" / "observe.py"
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))


def until(condition: Any, limit_s: float = 300.0) -> Any:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError(f"not within {limit_s} s")


def different(one: Any, other: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Where the two differ: path -> both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            name: values
            for key in {**one, **other}
            for name, values in different(one.get(key), other.get(key), f"{path}/{key}").items()
        }
    return {} if one == other else {path: (one, other)}


SECRETS = {"CORPUS_TOKEN": "only for this attempt"}


class Attempt:
    """One attempt of the observing script, with its supervisor started in one of the two ways."""

    def __init__(self, folder: Path, supervisors: Supervisors, script: Path, args: list[str], **env: str) -> None:
        self.dir, self.run_id = folder / "node0", uuid.uuid4().hex[:10]
        (self.dir / "work").mkdir(parents=True)
        options = [
            "--standalone",
            "--nproc-per-node=2",
            f"--log-dir={self.dir}/logs/torchrun",
            "--redirects=3",
        ]
        self.launch = {
            "argv": [TORCHRUN, *options, str(script), *args], "env": self.environment() | env,
            "cwd": str(self.dir / "work"), "grace_s": 60.0, "launcher": "torchrun", "first_rank": 0, "processes": 2,
        }  # fmt: skip
        (self.dir / "launch.json").write_text(json.dumps(self.launch))
        self.process = supervisors.spawn(self.dir, self.run_id, 1, SECRETS)

    def environment(self) -> dict[str, str]:
        return {
            "RANKZERO_RUN_ID": self.run_id, "RANKZERO_ATTEMPT": "1", "RANKZERO_NODE_RANK": "0",
            "PYTEST_CURRENT_TEST": "", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
            "TORCHELASTIC_ERROR_FILE": f"{self.dir}/error.json",
            "RANKZERO_PROBE_DIR": f"{self.dir}/probe", "PYTHONPATH": str(PROBE_FOLDER),
        }  # fmt: skip

    @property
    def state(self) -> dict[str, Any]:
        with suppress(OSError):
            return dict(json.loads((self.dir / "supervisor.json").read_text()))
        return {}

    @property
    def note(self) -> str:
        return str(json.loads((self.dir / "worker" / "warm.json").read_text())["note"])

    def ended(self) -> dict[str, Any]:
        until(lambda: self.process.poll() is not None)
        assert self.state["state"] == "ended"
        assert processes.of_attempt(self.run_id, 1, 0) == []
        return self.state

    def ready(self) -> None:
        until(lambda: all((self.dir / "work" / f"ready{rank}").exists() for rank in (0, 1)))

    def result(self, rank: int) -> dict[str, Any]:
        return dict(json.loads(self.plain((self.dir / "work" / f"seen{rank}.json").read_text())))

    def plain(self, text: str) -> str:
        """The text without the names of this one attempt."""
        return text.replace(str(self.dir), "DIR").replace(self.run_id, "RUN")

    def report(self) -> tuple[Any, ...]:
        end = end_of(self.dir, self.state, self.launch, "node", 0, shut_down=False)
        error = end.error and (end.error.rank, end.error.exit_code, end.error.exception, end.error.line)
        message = re.sub(r"\bpid \d+", "pid", self.plain(end.message or ""))
        return end.state, end.reason, message, end.exit_code, end.next_step, error

    def probe_kinds(self) -> list[set[str]]:
        lines = [path.read_text().splitlines() for path in (self.dir / "probe").glob("*.jsonl")]
        return [
            {event.get("phase", event["kind"]) for line in rank for event in json.loads(line).get("events", [])}
            for rank in lines
        ]


@pytest.fixture(scope="module", autouse=True)
def ignored_signals():
    """As in a worker that was started with `nohup … &`; ranks ignore none of them."""
    handlers = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def warm(ignored_signals, tmp_path_factory):
    supervisors = Supervisors(tmp_path_factory.mktemp("warm"), is_warm=True)
    yield supervisors
    supervisors.close()


@pytest.fixture
def both(tmp_path, warm):
    """Starts the script both ways; returns the attempts, the plain one first."""
    attempts: list[Attempt] = []

    def start(*args: str, script: Path = OBSERVE, **env: str) -> list[Attempt]:
        plain = Attempt(tmp_path / "plain", Supervisors(tmp_path, is_warm=False), script, list(args), **env)
        attempts.append(plain)
        warm.want(plain.launch)
        warm._quiet_until = 0.0
        warm.prepare()
        assert warm.status.startswith(f"{READY} (")
        attempts.append(Attempt(tmp_path / "warm", warm, script, list(args), **env))
        assert attempts[1].note == IS_WARM
        return attempts

    yield start
    for attempt in attempts:
        if attempt.process.poll() is None:
            os.kill(attempt.process.pid, signal.SIGKILL)
            until(lambda attempt=attempt: attempt.process.poll() is not None)
        processes.kill_all(lambda name=attempt.run_id: processes.of_attempt(name, 1, 0), 60)


def test_a_script_sees_and_computes_the_same(both):
    plain, warm = both("--lr=0.1", "a b")
    assert (plain.ended()["exit_code"], warm.ended()["exit_code"]) == (0, 0)
    assert warm.state["is_warm"] and not plain.state["is_warm"]
    for rank in (0, 1):
        expected, result = plain.result(rank), warm.result(rank)
        assert different(expected["seen"], result["seen"]) == {}
        assert result["seen"]["environ"]["CORPUS_TOKEN"] == SECRETS["CORPUS_TOKEN"]
        assert result["losses"] == expected["losses"]
        assert (warm.dir / "work" / f"unclosed{rank}").read_text() == "all"
    drawn = [attempt.result(rank)["drawn"] for attempt in (plain, warm) for rank in (0, 1)]
    assert all(len(set(values)) == 4 for values in zip(*drawn, strict=True))
    assert warm.probe_kinds() == plain.probe_kinds()
    assert (warm.dir / "logs/rank0.err").exists()


def prepared(warm: Supervisors, folder: Path, **env: str) -> Any:
    """The process that is ready after a launch with these variables."""
    usual = Attempt.environment(SimpleNamespace(dir=folder, run_id="before"))  # type: ignore[arg-type]
    warm.want({"argv": [TORCHRUN], "env": usual | env})
    warm._quiet_until = 0.0
    warm.prepare()
    return warm._process


@pytest.mark.long
def test_a_variable_that_nothing_has_read_needs_no_other_process(both, warm, tmp_path):
    process = prepared(warm, tmp_path)
    plain, forked = both(CORPUS_FOLDER="/data/a b=c")
    assert warm._process is process
    assert (plain.ended()["exit_code"], forked.ended()["exit_code"]) == (0, 0)
    for rank in (0, 1):
        expected, result = plain.result(rank), forked.result(rank)
        assert expected["seen"]["environ"]["CORPUS_FOLDER"] == "/data/a b=c"
        assert different(expected["seen"], result["seen"]) == {}
        assert result["losses"] == expected["losses"]
    assert prepared(warm, tmp_path, OMP_NUM_THREADS="2") is not process


@pytest.mark.long
@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_rank_that_fails_is_reported_the_same(both, how: str):
    plain, warm = both(how)
    assert plain.ended()["exit_code"] == warm.ended()["exit_code"] == 1
    assert warm.report() == plain.report()


@pytest.mark.long
def test_a_rank_that_is_killed_is_reported_the_same(both):
    attempts = both("stay")
    for attempt in attempts:
        attempt.ready()
        until(lambda attempt=attempt: attempt.state["ranks"])
        os.kill(attempt.state["ranks"]["1"], signal.SIGKILL)
    assert [attempt.ended()["exit_code"] for attempt in attempts] == [1, 1]
    assert attempts[1].report() == attempts[0].report()


@pytest.mark.long
def test_a_stop_ends_both_the_same(both):
    attempts = both("stay")
    for attempt in attempts:
        attempt.ready()
        (attempt.dir / "stop").write_text("60")
    states = [attempt.ended() for attempt in attempts]
    assert states[0]["exit_code"] == states[1]["exit_code"]
    assert attempts[1].report() == attempts[0].report()


@pytest.mark.long
def test_killing_the_supervisor_or_torchrun_leaves_no_rank(both):
    plain, warm = both("stay")
    warm.ready()
    ranks = [processes.find(pid) for pid in until(lambda: warm.state["ranks"]).values()]
    assert {processes.environment(rank.pid)["RANKZERO_RUN_ID"] for rank in ranks} == {warm.run_id}
    assert len(processes.of_attempt(warm.run_id, 1, 0)) >= 3
    os.kill(warm.state["launcher_pid"], signal.SIGKILL)
    assert warm.ended()["signal"] == "SIGKILL"
    plain.ready()
    (plain.dir / "stop").write_text("60")
    plain.ended()
