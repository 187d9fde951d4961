"""Whether points of a metric stand at steps or at epochs."""

from __future__ import annotations

import pytest

from db.metrics.curves import runs_by_epoch
from domain.messages import Point
from tests.db.cluster import Cluster


def at(*steps: int, value: float = 0.5) -> list[Point]:
    return [(step, value, 10.0 + step) for step in steps]


EPOCHS = [(epoch, float(epoch), 10.0) for epoch in range(1, 6)]
BY_STEP = [(100 * epoch, float(epoch), 10.0) for epoch in range(1, 6)]


@pytest.mark.parametrize(
    ("series", "source", "is_by_epoch"),
    [
        pytest.param({"loss": at(*range(1, 6)), "epoch": EPOCHS}, "printed", True, id="counts epochs alone"),
        pytest.param({"loss": at(0, 1, 2), "other": at(*range(300)), "epoch": BY_STEP}, "events", True, id="beside"),
        pytest.param({"loss": at(*range(0, 500, 10)), "epoch": BY_STEP}, "events", False, id="steps"),
        pytest.param({"loss": at(1, 2, 3)}, "events", False, id="no epochs are known"),
        pytest.param({"other": at(1, 2, 3)}, "events", False, id="no such metric"),
    ],
)  # fmt: skip
def test_a_metric_by_epoch_is_told(cluster: Cluster, series, source: str, is_by_epoch: bool) -> None:
    run = cluster.launch(gpus_per_node=1)
    (task,) = cluster.assignments()
    cluster.points(task.fence, 0, 10, series, source=source)
    assert (run in runs_by_epoch(cluster.store, [run], "loss")) == is_by_epoch
