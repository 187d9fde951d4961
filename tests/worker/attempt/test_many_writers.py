"""A script that opens a writer at every step costs few requests."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.real


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
    assert [*node.server.series] == ["train/loss"]
    assert node.server.calls < 150
