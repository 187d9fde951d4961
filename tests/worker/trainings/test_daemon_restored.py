"""A store that was restored from an older copy: the node sends what that lacks, once, and nothing that it has."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from domain.assignments import Assignment
from tests.worker.fake_machine import FakeProcess
from tests.worker.streams.event_bytes import scalar
from tests.worker.virtual_node import VirtualNode, checkpoint

KEPT = ("reports", "files", "points_offsets", "series", "findings_of", "checkpoints")
EVENTS = "runs/a/events.out.tfevents.1.host.1.0"


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    return virtual_node


def train(process: FakeProcess) -> None:
    """Log, print and save, again and again until the test lets it end."""
    (process.folder / "runs/a").mkdir(parents=True)
    process.write(process.folder / "ready")
    step = 0
    while (process.folder / "ready").exists():
        process.write(EVENTS, scalar(step, step * 0.5, wall=process.wall()))
        process.print(f"step {step}")
        if step % 10 == 0:
            checkpoint(f"ckpt_{step}.pt")(process)
        process.sleep(1.0)
        step += 1


def copy_of(node: VirtualNode) -> dict[str, Any]:
    return {name: deepcopy(getattr(node.server, name)) for name in KEPT}


def restore(node: VirtualNode, copy: dict[str, Any]) -> None:
    for name, value in copy.items():
        setattr(node.server, name, value)


def complete(node: VirtualNode) -> set[str]:
    return {one["path"] for one in node.server.checkpoints if one["complete"]}


def assert_whole(node: VirtualNode) -> None:
    """Every point is there once, every line, and every checkpoint that is on the node."""
    (points,) = (points for tag, points in node.server.series.items() if tag.endswith("train/loss"))
    steps = [int(point[0]) for point in points]
    assert steps == list(range(len(steps))) and len(steps) > 60
    assert node.server.text("logs/rank0.out") == "".join(f"step {step}\n" for step in steps)
    assert complete(node) == {f"work/ckpt_{step}.pt" for step in steps if step % 10 == 0}
    assert len(node.server.checkpoints) == len(complete(node))
    for one in node.server.checkpoints:
        assert one["data"] == (node.dir() / one["path"]).read_bytes()


@pytest.fixture
def assignment(node: VirtualNode) -> Assignment:
    return node.assignment(node.script(train), store="before")


def restored(assignment: Assignment) -> Assignment:
    """The assignment as a restored copy of the store gives it."""
    return assignment.model_copy(update={"store": "after"})


@pytest.mark.parametrize("worker_restarts", [False, True])
def test_a_live_run_sends_again_what_an_older_store_lacks(
    node: VirtualNode, assignment: Assignment, worker_restarts: bool
) -> None:
    node.assign(assignment)
    node.until(lambda: "work/ckpt_20.pt" in complete(node))
    copy = copy_of(node)
    node.until(lambda: "work/ckpt_40.pt" in complete(node))
    if worker_restarts:
        node.end_worker()
        node.start_worker()
    restore(node, copy)
    node.assign(restored(assignment))
    node.until(lambda: {"work/ckpt_30.pt", "work/ckpt_40.pt", "work/ckpt_60.pt"} <= complete(node))
    node.let_end()
    assert node.until_settled().state == "succeeded"
    assert_whole(node)


def test_an_end_that_an_older_store_lacks_is_reported_again_with_all_data(
    node: VirtualNode, assignment: Assignment
) -> None:
    node.assign(assignment)
    node.until(lambda: "work/ckpt_20.pt" in complete(node))
    copy = copy_of(node)
    node.until(lambda: "work/ckpt_60.pt" in complete(node))
    node.let_end()
    node.until_settled()
    restore(node, copy)
    assert node.server.end() is None
    node.assign(restored(assignment))
    node.time.advance(0.0)
    node.until(lambda: node.server.end() is not None)
    assert node.until_settled().state == "succeeded"
    assert_whole(node)


def test_the_same_store_is_told_nothing_twice(node: VirtualNode, assignment: Assignment) -> None:
    node.assign(assignment)
    node.until(lambda: "work/ckpt_20.pt" in complete(node))
    told = len(node.server.reports)
    node.end_worker()
    node.start_worker()
    node.assign(assignment)
    node.until(lambda: "work/ckpt_30.pt" in complete(node))
    assert len(node.server.reports) == told
