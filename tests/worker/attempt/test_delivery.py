"""The end of an attempt is told when its ranks are gone; what it has left to send follows, and can be ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker.node_under_test import checkpoint, events
from worker.attempt import delivery
from worker.node.state_files import is_settled
from worker.session.failures import ServerMistake

LOUD = """
import sys
for _ in range(2000):
    sys.stderr.write("x" * 4000 + "\\n")
raise ValueError("bad label 17")
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Report the end before anything else is sent, and how much remains at every step."""
    monkeypatch.setattr(delivery, "PATIENCE_S", 0.0)
    monkeypatch.setattr(delivery, "REPORT_EVERY_S", 0.0)


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
    assert len(node.server.text("logs/rank0.err")) > 8_000_000


def test_what_is_left_is_sent_by_a_restarted_worker_and_nothing_is_started_twice(node):
    node.assign(node.assignment(node.script(LOUD)))
    node.until(lambda: ends(node))
    assert not is_settled(node.dir())
    node.start_worker()
    node.until_settled()
    assert len(node.server.text("logs/rank0.err")) > 8_000_000
    assert len(node.supervisors) == 1 and is_settled(node.dir())


def test_a_person_ends_it_and_is_told_what_stays_where(node):
    assignment = node.assignment(node.script(LOUD))
    node.assign(assignment)
    node.until(lambda: ends(node))
    node.assign(assignment.model_copy(update={"ends_delivery": True}))
    assert node.until_settled().delivery is None
    (finding,) = [finding for finding in node.server.findings_of[1] if finding.kind == "not sent"]
    assert f"stay on node n0: {node.dir()}" in finding.evidence
    assert len(node.server.text("logs/rank0.err")) < 8_000_000 < (node.dir() / "logs/rank0.err").stat().st_size


def test_data_that_the_server_fails_at_holds_up_no_end(node):
    node.server.fails_at_points[1] = ServerMistake("no")
    node.assign(node.assignment(node.script(events() + "raise ValueError('bad label 17')")))
    node.until(lambda: ends(node))
    assert "bad label 17" in ends(node)[0].message and ends(node)[0].delivery.has_points
    del node.server.fails_at_points[1]
    assert node.until_settled().delivery is None
    assert len(node.server.series["train/loss"]) == 5


def test_a_checkpoint_on_its_way_is_named_until_it_is_stored(node):
    node.assign(node.assignment(node.script(checkpoint("last.pt"))))
    node.until(lambda: ends(node))
    assert ends(node)[0].delivery.has_checkpoints
    assert node.until_settled().delivery is None
    assert [saved["complete"] for saved in node.server.checkpoints] == [True]


def test_what_the_server_wants_no_more_stays_on_the_node(node):
    node.assign(node.assignment(node.script(LOUD)))
    node.until(lambda: ends(node))
    node.server.superseded.add(1)
    node.until(lambda: not node.daemon.attempts)
    assert is_settled(node.dir()) and (node.dir() / "logs/rank0.err").exists()


MANY = """
import time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
for step in range(600):
    writer = EventFileWriter(f"runs/{step}" if FOLDERS else "runs/all")
    value = Summary.Value(tag="train/loss", simple_value=step * 0.5)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.close()
"""


@pytest.mark.parametrize("folders", [True, False])
def test_a_writer_for_every_step_takes_few_requests(node, folders):
    node.assign(node.assignment(node.script(MANY.replace("FOLDERS", str(folders)))))
    node.until_settled()
    points = [point[:2] for series in node.server.series.values() for point in series]
    assert sorted(points) == [(step, step * 0.5) for step in range(600)]
    assert len(node.server.series) == (600 if folders else 1)
    assert node.server.calls < 150


STRANGER = """
import os
os.makedirs("runs/a")
open("runs/a/events.out.tfevents.1.h.1.0", "wb").write(b"x" * 1000)
"""


def grow_until_settled(node, name, piece):
    """After the end of the attempt, append to one of its files at every step, until the attempt is settled."""
    node.until(lambda: ends(node))
    with (node.dir() / name).open("ab", buffering=0) as stranger:

        def is_settled_though_it_grows() -> bool:
            stranger.write(piece)
            return not node.daemon.attempts

        node.until(is_settled_though_it_grows)


def test_what_a_stranger_goes_on_writing_holds_nothing_up(node):
    node.assign(node.assignment(node.script(STRANGER)))
    grow_until_settled(node, "work/runs/a/events.out.tfevents.1.h.1.0", b"x" * 100_000)
    assert node.server.end().delivery is None


TABLE = """
with open("metrics.csv", "w") as table:
    table.write("step,loss\\n" + "".join(f"{step},0.5\\n" for step in range(100)))
"""


def test_a_table_that_a_stranger_goes_on_writing_holds_nothing_up(node):
    node.assign(node.assignment(node.script(TABLE)))
    grow_until_settled(node, "work/metrics.csv", b"1000,0.5\n" * 30_000)
    assert len(node.server.series["metrics:loss"]) >= 100


PRINTING = """
for step in range(100): print(f"step {step} loss {step * 0.5}")
"""


def test_a_log_that_a_stranger_goes_on_printing_to_holds_nothing_up(node):
    node.assign(node.assignment(node.script(PRINTING)))
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
