"""`rankzero.log`: what it records, and that it never disturbs a script."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rankzero.watched_process import WatchedProcess
from tests.worker.probe.loggers import logged
from tests.worker.probe.watched import TORCHRUN, Watched

pytestmark = pytest.mark.real


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedProcess]:
    with WatchedProcess(tmp_path) as process:
        yield process


def test_numbers_of_every_kind_are_recorded(watched: WatchedProcess):
    ended = watched.run(
        """
        import numpy, torch
        import rankzero
        rankzero.watch()
        rankzero.log({"a": 1, "b": 0.5, "flag": True, "nested": {"deep": {"x": 2}}})
        rankzero.log({"a": torch.tensor(2.0, requires_grad=True), "b": numpy.float32(0.25), "one": torch.ones(1, 1)})
        rankzero.log({"a": float("nan"), "b": float("-inf")}, step=10)
        rankzero.log({"a": 4.0}, step=torch.tensor(12))
        rankzero.log({"a": 5.0})
        """
    )
    assert (ended.code, ended.err) == (0, "")
    points = watched.attempt.points()
    assert [step for step, _ in points["a"]] == [0, 1, 10, 12, 13]
    assert [value for _, value in points["a"] if not math.isnan(value)] == [1, 2, 4, 5]
    assert points["b"] == [(0, 0.5), (1, 0.25), (10, -math.inf)]
    assert {name: series for name, series in points.items() if name not in ("a", "b")} == {
        "flag": [(0, 1)], "nested/deep/x": [(0, 2)], "one": [(1, 1)],
    }  # fmt: skip


def test_what_cannot_be_recorded_is_said_once(watched: WatchedProcess):
    ended = watched.run(
        """
        import rankzero
        rankzero.log({"a": 1})
        rankzero.log({"a": 2})
        rankzero.watch()
        for _ in range(2):
            rankzero.log({"loss": 1, "image": [1, 2], "name": "x"})
        rankzero.log([("a", 1)])
        rankzero.log({"a": 1}, step="first")
        print("done")
        """
    )
    assert (ended.code, ended.out) == (0, "done\n")
    outside, skipped, no_mapping, no_step = ended.err.splitlines()
    assert "outside of a run" in outside
    assert skipped == "rankzero: log() records numbers only; skipped: image, name"
    assert "could not record" in no_mapping
    assert "could not record" in no_step
    assert watched.attempt.points()["loss"] == [(0, 1), (1, 1)]


@pytest.mark.training
def test_in_a_launched_run_rank_0_has_the_plain_names(tmp_path: Path):
    watched = Watched(tmp_path)
    file = watched.script(
        """
        import torch.distributed as dist
        import rankzero
        dist.init_process_group("gloo")
        for step in range(3):
            rankzero.log({"loss": step + 10 * dist.get_rank()}, step=step)
        dist.destroy_process_group()
        """
    )
    env = watched.environment(path=str(Path(__file__).parents[2]), RANKZERO_RUN_ID="launched01")
    watched.run([*TORCHRUN, "--nproc-per-node=2", file], env=env)
    curves = {name: [*map(tuple, points)] for name, points in logged.curves(tmp_path / "attempt").items()}
    assert curves == {"loss": [(0, 0), (1, 1), (2, 2)], "rank1:loss": [(0, 10), (1, 11), (2, 12)]}


def test_the_same_values_in_an_event_file_are_one_series(tmp_path: Path):
    watched = Watched(tmp_path)
    file = watched.script(
        """
        from tensorboardX import SummaryWriter
        import rankzero
        writer = SummaryWriter("logs")
        for step in range(3):
            rankzero.log({"loss": step, "other": step}, step=step)
            writer.add_scalar("loss", step, step)
        writer.close()
        """
    )
    env = watched.environment(path=str(Path(__file__).parents[2]), RANKZERO_RUN_ID="launched01")
    watched.run([sys.executable, file], env=env)
    assert list(logged.curves(tmp_path / "attempt")) == ["other"]
