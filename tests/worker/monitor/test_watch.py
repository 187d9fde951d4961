"""One attempt judged: by what the probe wrote, what the losses say, and a clock of the test's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain.messages import Reason, TaskReport
from domain.spec import RunSpec
from tests.virtual_time import VirtualTime
from worker.monitor.probe_reader import FOLDER, ProbeReader
from worker.monitor.watch import HUNG_FILE, LOSSES_FILE, Watch, with_hang_reason

NAN = float("nan")
STACK = [["/home/me/train.py", 41, "train"], ["/home/me/train.py", 60, "main"]]


class Probed:
    """Two ranks as their probes wrote them, and the watch over them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.time = folder, VirtualTime(wall=1000.0)
        (folder / FOLDER).mkdir()
        self.watch = self.open()

    def open(self, **spec) -> Watch:
        reader = ProbeReader(self.folder / FOLDER)
        return Watch(self.folder, RunSpec(target="t.py", **spec), reader, self.time)

    @property
    def now(self) -> float:
        return self.time.wall()

    def line(self, rank: int, step: int, doing: str = "stepping", **more) -> None:
        said = {"t": self.now, "pid": 10**8 + rank, "rank": rank, "world_size": 2, "step": step, "in": doing}
        if step:
            said |= {"last_step_at": self.now, "step_time_s": 0.5}
        with (self.folder / FOLDER / f"{said['pid']}.jsonl").open("a") as file:
            file.write(json.dumps(said | more) + "\n")

    def kinds(self) -> list[str]:
        """As judged; a hang is told at the look after the ranks were asked."""
        self.watch.judge()
        self.time.run_until(lambda: not self.watch.is_requesting_stacks)
        return [finding.kind for finding in self.watch.judge()]


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


def stand_still(probed: Probed, seconds: float, doing: str = "computing") -> None:
    for rank in (0, 1):
        probed.line(rank, 12)
    at = probed.now
    probed.time.advance(seconds)
    probed.line(0, 12, "waiting", last_step_at=at)
    probed.line(1, 12, doing, last_step_at=at, stack=STACK)


def test_a_rank_that_stands_still_is_named_with_its_line(probed: Probed):
    stand_still(probed, 61)
    assert probed.kinds() == ["hung"]
    assert probed.watch.hang is not None
    assert "Rank 1 is behind: at train.py line 41 in train, after step 12." in probed.watch.hang


def test_when_they_step_again_it_is_no_longer_so(probed: Probed):
    stand_still(probed, 61)
    assert probed.kinds() == ["hung"]
    probed.line(0, 13)
    probed.line(1, 13)
    assert probed.kinds() == []
    assert probed.watch.hang is None


def test_patience_is_the_specs(probed: Probed):
    stand_still(probed, 30)
    assert probed.kinds() == []
    probed.watch = probed.open(hang_after_s=20)
    assert probed.kinds() == ["hung"]


@pytest.mark.parametrize("doing", ["saving", "validating", "compiling"])
def test_who_saves_validates_or_compiles_is_not_hung(probed: Probed, doing: str):
    stand_still(probed, 600, doing)
    assert probed.kinds() == []


def test_a_leak_in_the_samples_is_judged_with_the_length_of_the_first_epoch(probed: Probed):
    with (probed.folder / "hardware.jsonl").open("w") as file:
        for step in range(1, 400, 5):
            values = {"rank1/own_memory_bytes": step * 12e6, "memory_available_bytes": 8e9}
            file.write(json.dumps({"t": 1000.0 + step, "step": step, "values": values}) + "\n")
    probed.line(0, 12)
    assert probed.kinds() == ["memory leak"]
    epoch = {"kind": "epoch", "dataset_length": 16_000, "batch_size": 8, "sampler": {"replicas": 2}}
    probed.line(0, 13, events=[epoch | {"step": 0}])
    assert probed.kinds() == []  # a cache that fits until the epoch's end at step 1000
    probed.line(0, 14, events=[epoch | {"step": 200}])
    assert probed.kinds() == ["memory leak"]


def test_losses_are_judged_and_remembered_by_the_next_worker(probed: Probed):
    probed.watch.losses.take({"train/loss": [(1, 2.0, 0.0), (2, NAN, 0.0), (3, NAN, 0.0)]}, "events")
    assert probed.kinds() == ["loss is not a number"]
    assert (probed.folder / LOSSES_FILE).exists()
    probed.watch = probed.open()
    assert probed.kinds() == ["loss is not a number"]


def rerun(probed: Probed, **more) -> None:
    note = {"rank": 0, "pid": 9, "at": probed.now, "file": "/home/me/train.py", "line": 2, "guarded": False}
    (probed.folder / FOLDER / "rerun-0.json").write_text(json.dumps(note | {"sign": "init_process_group"} | more))


def wait_for_a_batch(probed: Probed, seconds: float, step: int = 0) -> None:
    """Let both ranks wait for a loader's process from now on."""
    at = probed.now
    probed.time.advance(seconds)
    for rank in (0, 1):
        probed.line(rank, step, "data", last_step_at=at if step else None)


def test_a_script_that_runs_again_is_named_at_once_and_as_a_hang_within_a_minute(probed: Probed):
    probed.line(0, 0, "data")
    probed.line(1, 0, "data")
    rerun(probed)
    wait_for_a_batch(probed, 5)
    assert probed.kinds() == ["script runs again"]
    wait_for_a_batch(probed, 26)
    assert probed.kinds() == ["hung"]
    assert probed.watch.hang is not None
    assert probed.watch.hang.startswith(
        'The script runs again in every process that it starts, because it has no `if __name__ == "__main__":` '
        "(train.py line 2: the process joins the process group again). No rank has made a step for 31 s."
    )
    finding = probed.watch.judge()[0]
    assert finding.fix.startswith('Add the line `if __name__ == "__main__":` to train.py')


def test_a_rank_that_steps_all_the_same_is_not_hung(probed: Probed):
    rerun(probed)
    probed.time.advance(1)
    probed.line(0, 12)
    probed.line(1, 12)
    wait_for_a_batch(probed, 40, step=12)
    assert probed.kinds() == ["script runs again"]


def test_a_validation_whose_loader_runs_the_script_again_is_hung(probed: Probed):
    probed.line(0, 12)
    probed.line(1, 12)
    rerun(probed)
    wait_for_a_batch(probed, 31, step=12)
    assert probed.kinds() == ["hung"]


def test_an_import_that_fails_in_a_guarded_script_is_no_rerun(probed: Probed):
    rerun(probed, sign="ModuleNotFoundError: No module named 'lib'", guarded=True)
    wait_for_a_batch(probed, 31)
    assert probed.kinds() == []


def test_a_hang_the_run_was_ended_for_stays_in_the_end(probed: Probed):
    stand_still(probed, 61)
    probed.kinds()
    for rank in (0, 1):
        probed.line(rank, 12, events=[{"kind": "exit"}])
    assert [finding.kind for finding in probed.watch.judge_end()] == ["hung"]


def test_the_end_of_an_attempt_we_ended_for_hanging_is_a_failure(tmp_path: Path):
    stopped = TaskReport(state="stopped", exit_code=-15)
    assert with_hang_reason(stopped, tmp_path) == stopped
    (tmp_path / HUNG_FILE).parent.mkdir()
    (tmp_path / HUNG_FILE).write_text("No rank has made a step for 61 s.")
    end = with_hang_reason(stopped, tmp_path)
    assert (end.state, end.reason, end.message) == (
        "failed",
        Reason.HUNG,
        "No rank has made a step for 61 s.",
    )
    assert with_hang_reason(TaskReport(state="succeeded"), tmp_path).state == "succeeded"
