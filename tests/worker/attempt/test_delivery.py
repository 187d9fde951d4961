"""The end of an attempt is told when its ranks are gone; what it has left to send follows, and can be ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker.virtual_node import VirtualNode, checkpoint, events, failing, printing, then
from worker.attempt.delivery import PATIENCE_S, REPORT_EVERY_S
from worker.node.state_files import is_settled
from worker.session.failures import ServerMistake

REQUEST_S = 4.0
"""The time that a bundle takes here, and the parts of a checkpoint."""


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    """A node on a slow network."""
    server = virtual_node.server
    for name in ("bundle", "send_checkpoint"):
        setattr(server, name, slowly(virtual_node, getattr(server, name)))
    return virtual_node


def slowly(node: VirtualNode, request: Callable[..., Any]) -> Callable[..., Any]:
    def take_time(*arguments: Any) -> Any:
        node.time.pause(REQUEST_S)
        return request(*arguments)

    return take_time


def lines_of_noise(process):
    process.write(process.logs["err"], (b"x" * 99 + b"\n") * 100_000)


LOUD = then(lines_of_noise, failing("ValueError: bad label 17"))


def ends(node, fence=1):
    return [report for number, report in node.server.reports if number == fence and report.exit_code is not None]


def test_the_end_and_its_reason_are_told_before_the_rest_is_sent(node):
    node.assign(node.assignment(node.script(LOUD)))
    last = node.until_settled()
    first = ends(node)[0]
    assert first.state == last.state == "failed"
    assert "bad label 17" in first.message and first.message == last.message
    assert first.delivery.total_bytes - first.delivery.sent_bytes > 0
    assert last.delivery is None
    assert len(node.server.text("logs/rank0.err")) > 10_000_000


def test_what_is_left_is_sent_by_a_restarted_worker_and_nothing_is_started_twice(node):
    node.assign(node.assignment(node.script(LOUD)))
    node.until(lambda: ends(node))
    assert not is_settled(node.dir())
    node.start_worker()
    node.until_settled()
    assert len(node.server.text("logs/rank0.err")) > 10_000_000
    assert len(node.machine.supervisors) == 1 and is_settled(node.dir())


def test_a_person_ends_it_and_is_told_what_stays_where(node):
    assignment = node.assignment(node.script(LOUD))
    node.assign(assignment)
    node.until(lambda: ends(node))
    node.assign(assignment.model_copy(update={"ends_delivery": True}))
    assert node.until_settled().delivery is None
    (finding,) = [finding for finding in node.server.findings_of[1] if finding.kind == "not sent"]
    assert f"stay on node n0: {node.dir()}" in finding.evidence
    assert len(node.server.text("logs/rank0.err")) < 10_000_000 < (node.dir() / "logs/rank0.err").stat().st_size


def test_data_that_the_server_fails_at_holds_up_no_end(node):
    node.server.fails_at_points[1] = ServerMistake("no")
    node.assign(node.assignment(node.script(then(events(), failing("ValueError: bad label 17")))))
    node.until(lambda: ends(node))
    assert "bad label 17" in ends(node)[0].message and ends(node)[0].delivery.has_points
    del node.server.fails_at_points[1]
    assert node.until_settled().delivery is None
    assert len(node.server.series["train/loss"]) == 5


def test_a_checkpoint_on_its_way_is_named_until_it_is_stored(node):
    send = node.server.send_checkpoint
    node.server.send_checkpoint = lambda *part: node.time.pause(60.0) or send(*part)
    node.assign(node.assignment(node.script(checkpoint("last.pt"))))
    node.until(lambda: node.supervisor().get("ended_at"))
    node.time.advance(PATIENCE_S - 0.5)
    assert not ends(node), "most ends need no second report"
    node.time.advance(1.0)
    assert [end.delivery.has_checkpoints for end in ends(node)] == [True]
    node.time.advance(10 * REPORT_EVERY_S)
    assert len(ends(node)) == pytest.approx(11, abs=1) and ends(node)[-1].delivery.has_checkpoints
    assert node.until_settled().delivery is None
    assert [saved["complete"] for saved in node.server.checkpoints] == [True]


def test_what_the_server_wants_no_more_stays_on_the_node(node):
    node.assign(node.assignment(node.script(LOUD)))
    node.until(lambda: ends(node))
    node.server.superseded.add(1)
    node.until(lambda: not node.daemon.attempts)
    assert is_settled(node.dir()) and (node.dir() / "logs/rank0.err").exists()


def damaged(process):
    (process.folder / "runs/a").mkdir(parents=True)
    process.write("runs/a/events.out.tfevents.1.h.1.0", b"x" * 1000)


def grow_until_settled(node, name, piece):
    """After the end of the attempt, append to one of its files four times a second, until the attempt is settled."""
    node.until(lambda: node.supervisor().get("ended_at"))

    def grow() -> None:
        with (node.dir() / name).open("ab", buffering=0) as stranger:
            while node.daemon.attempts:
                stranger.write(piece)
                node.time.pause(0.25)

    node.time.start("stranger", grow)
    node.until(lambda: not node.daemon.attempts)


def test_what_a_stranger_goes_on_writing_holds_nothing_up(node):
    node.assign(node.assignment(node.script(damaged)))
    grow_until_settled(node, "work/runs/a/events.out.tfevents.1.h.1.0", b"x" * 100_000)
    assert node.server.end().delivery is None


def table(process):
    process.write("metrics.csv", b"step,loss\n" + b"".join(b"%d,0.5\n" % step for step in range(100)))


def test_a_table_that_a_stranger_goes_on_writing_holds_nothing_up(node):
    node.assign(node.assignment(node.script(table)))
    grow_until_settled(node, "work/metrics.csv", b"1000,0.5\n" * 30_000)
    assert len(node.server.series["metrics:loss"]) >= 100


def test_a_log_that_a_stranger_goes_on_printing_to_holds_nothing_up(node):
    node.assign(
        node.assignment(node.script(printing("\n".join(f"step {step} loss {step * 0.5}" for step in range(100)))))
    )
    grow_until_settled(node, "logs/rank0.out", b"step 1000 loss 0.5\n" * 80_000)
    assert len(node.server.text("logs/rank0.out")) < (node.dir() / "logs/rank0.out").stat().st_size


def cut(log: Path) -> None:
    os.truncate(log, 10)


def replaced(log: Path) -> None:
    log.unlink()
    log.write_text("another one")


@pytest.mark.parametrize("change", [cut, replaced, Path.unlink])
def test_a_log_that_somebody_changes_while_it_is_sent_holds_nothing_up(node, change: Callable[[Path], None]):
    node.assign(node.assignment(node.script(LOUD)))
    node.until(lambda: ends(node))
    change(node.dir() / "logs/rank0.err")
    node.until_settled()
    (finding,) = [finding for finding in node.server.findings_of[1] if finding.kind == "not read"]
    assert "logs/rank0.err" in finding.evidence
