"""The cluster and its live runs as Prometheus scrapes them, in its text format."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from fastapi import APIRouter
from starlette.responses import Response

from dashboard.api.context import TheService
from db.runs import run_queries
from domain.messages import LIVE_STATES, State
from domain.views import NodeView, RunView

router = APIRouter(tags=["system"])
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_RUNS = 1000
LOAD = ("cpu_percent", "memory_used_bytes", "memory_total_bytes", "disk_free_bytes", "disk_total_bytes")
GPU_LOAD = ("utilisation_percent", "memory_used_bytes", "temperature_c", "power_w")
HELP = {
    "rankzero_runs": "Queued and live runs by state.",
    "rankzero_node_up": "1 while the node sends heartbeats.",
    "rankzero_node_slots": "Devices of the node.",
    "rankzero_node_free_slots": "Devices that a run can get.",
    "rankzero_run_step": "The last step of a live run.",
    "rankzero_run_loss": "The last training loss of a live run.",
    "rankzero_run_throughput": "The last throughput of a live run, in the unit it logs.",
    "rankzero_run_world_size": "Ranks of a live run.",
    "rankzero_run_attention": "1 while a live run needs a person.",
    **{f"rankzero_node_{name}": "The last heartbeat's figure." for name in LOAD},
    **{f"rankzero_gpu_{name}": "The last heartbeat's figure." for name in GPU_LOAD},
}
Sample = tuple[str, Mapping[str, str], float | None]


@router.get("/metrics", response_class=Response)
def prometheus(service: TheService) -> Response:
    """Gauges of nodes, devices and live runs; a figure that was not read has no line."""
    states = [State.QUEUED, *LIVE_STATES]
    runs = run_queries.runs(service.store, service.clock(), states, limit=MOST_RUNS)
    samples = [*_of_runs(runs), *(sample for node in service.nodes() for sample in _of_node(node))]
    return Response(exposition(samples), media_type=CONTENT_TYPE)


def exposition(samples: list[Sample]) -> str:
    """The text format: each metric once with its help, then its samples."""
    by_metric: dict[str, list[str]] = {}
    for metric, labels, value in samples:
        if value is not None:
            named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            by_metric.setdefault(metric, []).append(f"{metric}{{{named}}} {_number(value)}")
    lines = []
    for metric, of_metric in by_metric.items():
        lines += [f"# HELP {metric} {HELP[metric]}", f"# TYPE {metric} gauge", *of_metric]
    return "\n".join(lines) + "\n"


def _of_runs(runs: list[RunView]) -> Iterator[Sample]:
    for state in (State.QUEUED, *sorted(LIVE_STATES)):
        yield "rankzero_runs", {"state": state.value}, sum(run.state == state for run in runs)
    for run in runs:
        if run.state in LIVE_STATES:
            labels = {"run": run.id, "name": run.name, "project": run.project}
            yield "rankzero_run_step", labels, run.step
            yield "rankzero_run_loss", labels, run.last_loss
            yield "rankzero_run_throughput", labels, run.throughput
            yield "rankzero_run_world_size", labels, run.world_size
            yield "rankzero_run_attention", labels, int(run.attention is not None)


def _of_node(node: NodeView) -> Iterator[Sample]:
    labels, load = {"node": node.name}, node.load or {}
    yield "rankzero_node_up", labels, int(node.state == "alive")
    yield "rankzero_node_slots", labels, node.slots
    yield "rankzero_node_free_slots", labels, node.free
    if node.state != "alive":
        return  # its last figures are old
    for name in LOAD:
        yield f"rankzero_node_{name}", labels, load.get(name)
    for gpu in load.get("gpus", ()):
        for name in GPU_LOAD:
            yield f"rankzero_gpu_{name}", labels | {"gpu": str(gpu.get("id"))}, gpu.get(name)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return f"{value:.17g}" if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")
