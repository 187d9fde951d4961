"""What Prometheus scrapes: nodes and live runs, each figure only where it was read."""

from __future__ import annotations

import math
import re

from dashboard.api.prometheus import exposition
from domain.messages import NodeLoad
from tests.dashboard.running import FakeNode, Running

LINE = re.compile(r'^[a-z_]+\{([a-z]+="(?:[^"\\\n]|\\.)*",?)*\} (NaN|[+-]Inf|-?[0-9.e+-]+)$')


def test_nodes_and_live_runs_are_gauges(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(name='say "hi"')
    task = node.part()
    node.report(task, "running")
    node.log_points(task, 0, train__loss=[(7, 0.5, 100.0)])
    node.client.load(NodeLoad(cpu_percent=12.5, gpus=[{"id": "GPU-a", "power_w": 540.0, "temperature_c": None}]))
    answer = dashboard.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert all(LINE.match(line) for line in lines if not line.startswith("# "))
    labels = f'{{run="{run_id}",name="say \\"hi\\"",project="default"}}'
    assert f"rankzero_run_loss{labels} 0.5" in lines and f"rankzero_run_step{labels} 7" in lines
    assert 'rankzero_runs{state="running"} 1' in lines and 'rankzero_runs{state="queued"} 0' in lines
    assert 'rankzero_node_up{node="n0"} 1' in lines and 'rankzero_node_free_slots{node="n0"} 1' in lines
    assert lines.count("# TYPE rankzero_node_up gauge") == 1
    assert dashboard.anonymous().get("/metrics").status_code == 401


def test_metrics_leave_out_unread_values_and_write_nan() -> None:
    text = exposition(
        [
            ("rankzero_run_loss", {"run": "a"}, math.nan),
            ("rankzero_run_loss", {"run": "b"}, math.inf),
            ("rankzero_run_step", {"run": "a"}, None),
        ]
    )
    assert text.splitlines()[2:] == ['rankzero_run_loss{run="a"} NaN', 'rankzero_run_loss{run="b"} +Inf']
