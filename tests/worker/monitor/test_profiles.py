"""A requested profile travels to a rank that trains and back, and leaves a script's own profiler alone. Real torch."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.assignments import ProfileRequest
from domain.launch import plan
from domain.profiles.records import RankProfile
from worker.monitor.probe_reader import ProbeReader
from worker.monitor.profiles import ProfileReporter
from worker.session.client import TaskRef

pytestmark = [pytest.mark.real, pytest.mark.training]
STEPS_AHEAD = 100
PATIENCE_S = 300.0
SCRIPT = """
import time
from pathlib import Path
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
own = torch.profiler.profile()
own.start()
steps = 0
while not Path("end").exists():
    if Path("hold").exists():
        Path("held.new").write_text(str(steps))
        Path("held.new").rename("held")
        while Path("hold").exists():
            time.sleep(0.01)
    if own and Path("close").exists():
        own.stop()
        own = None
    if own is None and Path("open").exists():
        with torch.profiler.profile() as later:
            model(torch.ones(4, 8))
        Path("opened").write_text(str(len(later.events())))
        Path("open").unlink()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    steps += 1
    time.sleep(0.04)
"""


class Rank:
    """A script with the probe in a process of its own, and the worker's reporter of its profiles."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reports = folder, list[RankProfile]()
        self.probe = ProbeReader(folder / "probe")
        self.reporter = ProfileReporter(folder, self, TaskRef(1, 0), "run/1")  # type: ignore[arg-type]
        ours = {"RANKZERO_PROBE_DIR": str(folder / "probe"), "PYTHONPATH": str(plan.PROBE_FOLDER)}
        env = os.environ | ours | {"RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=folder, env=env, stderr=subprocess.PIPE)

    def profile(self, _task: TaskRef, outcome: RankProfile) -> None:
        self.reports.append(outcome)

    def step(self) -> int:
        self.probe.look()
        status = self.probe.latest().get(0)
        return status.step if status else 0

    def request(self, name: str, ahead: int = STEPS_AHEAD, steps: int = 3, within_s: float = PATIENCE_S) -> int:
        """Ask for steps so far ahead; return where the rank stands, which makes none meanwhile."""
        hold, held = self.folder / "hold", self.folder / "held"
        hold.touch()
        wait_for(held.exists)
        step, until = int(held.read_text()), time.time() + within_s
        self.reporter.request(
            ProfileRequest(id=name * 10, first_step=step + ahead, steps=steps, ranks=[0, 1], until=until)
        )
        held.unlink()
        hold.unlink()
        return step

    def answer(self, profile_id: str) -> RankProfile:
        def reported() -> list[RankProfile]:
            self.reporter.step()
            return [report for report in self.reports if report.profile == profile_id * 10]

        return wait_for(reported)[0]


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


@pytest.fixture(scope="module")
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rank]:
    rank = Rank(tmp_path_factory.mktemp("attempt"))
    try:
        wait_for(rank.step)
        yield rank
        (rank.folder / "end").touch()
        _, errors = rank.process.communicate(timeout=300)
        noise = [line for line in errors.splitlines() if not line.startswith(b"USDT")]  # of the script's profiler
        assert (rank.process.returncode, noise) == (0, [])
    finally:
        rank.process.kill()
        rank.process.wait()


@pytest.mark.long
def test_a_profile_is_recorded_summarised_and_gone_and_never_disturbs_the_scripts_own(rank: Rank) -> None:
    rank.request("a")
    assert "profiler of its own" in rank.answer("a").why
    (rank.folder / "close").touch()

    rank.request("b")
    report = rank.answer("b")
    assert (report.state, report.file) == ("recorded", f"profiles/{'b' * 10}/trace0.json.gz")
    trace = rank.folder / report.file
    assert (trace.stat().st_mode & 0o777, trace.stat().st_size) == (0o600, report.size_bytes)
    with gzip.open(trace) as file:
        names = {event.get("name") for event in json.load(file)["traceEvents"]}
    assert {"ProfilerStep#1", "ProfilerStep#3", "aten::linear"} <= names and "ProfilerStep#4" not in names
    assert report.overview is not None and report.overview.steps == 3
    assert report.step_s_before is not None and report.step_s_before > 0.04
    assert any("sleep" in name for _, name, _ in report.flame)
    assert sorted(path.name for path in trace.parent.iterdir()) == ["rank0.json", "trace0.json.gz"]

    rank.request("c", ahead=100_000, within_s=1)
    late = rank.answer("c")
    assert (late.state, late.why.startswith("it was at step")) == ("timed out", True)
    rank.request("d", ahead=-50)
    assert "already past step" in rank.answer("d").why


def test_a_request_gives_way_to_a_profiler_that_the_script_opens(rank: Rank) -> None:
    (rank.folder / "close").touch()
    step = rank.request("e", steps=10_000)
    wait_for(lambda: rank.step() >= step + STEPS_AHEAD)
    (rank.folder / "open").touch()
    assert "opened a profiler of its own" in rank.answer("e").why
    opened = rank.folder / "opened"
    assert int(wait_for(lambda: opened.exists() and opened.read_text())) > 0, "its own recording is whole"
