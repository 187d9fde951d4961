"""The server, its nodes and its live runs as Prometheus scrapes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import Response

from dashboard.service.service import Service
from db import acting
from db.models import PrivateProject
from db.runs import run_queries
from db.runs.run_list import RunList, RunSelection
from domain.messages import LIVE_STATES, State
from domain.views import NodeView, RunView

router = APIRouter(tags=["system"])


@router.get("/metrics", response_class=Response)
def metrics(request: Request) -> Response:
    """Gauges of nodes, GPUs and live runs as Prometheus text, or as OpenMetrics where Accept names it."""
    try:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
    except TypeError:  # a version in words
        encode, content_type = choose_encoder("")
    return Response(encode(request.app.state.metrics), media_type=content_type)


T = TypeVar("T")
Labels = tuple[str, ...]
Figures = Mapping[str, tuple[str, Callable[[T], Any]]]
"""By the metric's name: its help, and how to read it; what is no number has no sample."""
MOST_RUNS = 1000
MOST_GPUS = 64
"""GPUs of one node: how many a worker names is its own choice."""
LONGEST_LABEL = 200
UNITS = ("bytes", "celsius", "ratio", "seconds", "watts")
SERVER: Figures[Service] = {
    "rankzero_store_up": ("1 while the server can store what arrives.", lambda service: int(service.trouble is None)),
    "rankzero_files_free_bytes": (
        "Free on the disk of the server's files.",
        lambda service: service.files.free_bytes(),
    ),
    "rankzero_files_full_in_seconds": (
        "Time until that disk is full at the present rate.",
        lambda service: service.disk_forecast.now(with_deletable=False).full_in_s,
    ),
}
NODE: Figures[NodeView] = {
    "rankzero_node_up": ("1 while the node sends heartbeats.", lambda node: int(node.state == "alive")),
    "rankzero_node_silent_seconds": ("Time since the last heartbeat.", lambda node: node.silent_s),
    "rankzero_node_slots": ("Devices of the node.", lambda node: node.slots),
    "rankzero_node_free_slots": ("Devices that a run can get.", lambda node: node.free),
}


def _share(percent: Any) -> float | None:
    return percent / 100 if isinstance(percent, int | float) else None


LOAD: Figures[dict[str, Any]] = {
    "rankzero_node_cpu_ratio": ("Busy share of all cores.", lambda load: _share(load.get("cpu_percent"))),
    "rankzero_node_memory_used_bytes": ("Memory in use.", lambda load: load.get("memory_used_bytes")),
    "rankzero_node_memory_size_bytes": ("Memory of the node.", lambda load: load.get("memory_total_bytes")),
    "rankzero_node_disk_free_bytes": ("Free disk space.", lambda load: load.get("disk_free_bytes")),
    "rankzero_node_disk_size_bytes": ("Size of the disk.", lambda load: load.get("disk_total_bytes")),
}
GPU: Figures[dict[str, Any]] = {
    "rankzero_gpu_utilisation_ratio": ("Busy share.", lambda gpu: _share(gpu.get("utilisation_percent"))),
    "rankzero_gpu_memory_used_bytes": ("Memory in use.", lambda gpu: gpu.get("memory_used_bytes")),
    "rankzero_gpu_temperature_celsius": ("Temperature.", lambda gpu: gpu.get("temperature_c")),
    "rankzero_gpu_power_watts": ("Power drawn.", lambda gpu: gpu.get("power_w")),
}
RUN: Figures[RunView] = {
    "rankzero_run_step": ("The last step of a live run.", lambda run: run.step),
    "rankzero_run_loss": ("The last training loss of a live run.", lambda run: run.last_loss),
    "rankzero_run_throughput": ("The last throughput of a live run, in the unit it logs.", lambda run: run.throughput),
    "rankzero_run_world_size": ("Ranks of a live run.", lambda run: run.world_size),
    "rankzero_run_attention": ("1 while a live run needs a person.", lambda run: int(run.attention is not None)),
}


def registry(service: Service) -> CollectorRegistry:
    """Everything that `/metrics` shows; read again for each scrape."""
    registry = CollectorRegistry()
    registry.register(ClusterCollector(service))
    ProcessCollector(registry=registry)
    return registry


class ClusterCollector(Collector):
    """Reads the store once for a scrape; figures of a silent node are old, so they are left out."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples."""
        nodes = self._service.nodes()
        loads = [(node.name, node.load) for node in nodes if node.state == "alive" and node.load]
        yield from gauges(SERVER, (), [((), self._service)])
        yield from self._runs()
        yield from gauges(NODE, ("node",), [((node.name,), node) for node in nodes])
        yield from gauges(LOAD, ("node",), [((name,), load) for name, load in loads])
        yield from gauges(GPU, ("node", "gpu"), [gpu for name, load in loads for gpu in gpus(name, load)])

    def _runs(self) -> Iterator[Metric]:
        store, now = self._service.store, self._service.clock()
        with store.read() as session:
            counts = RunList(session, RunSelection(), now).not_ended()
        states = GaugeMetricFamily("rankzero_runs", "Queued and live runs by state.", labels=["state"])
        for state in (State.QUEUED, *sorted(LIVE_STATES)):
            states.add_metric([state.value], counts[state])
        yield states
        with store.read() as session:
            private = {row.project for row in session.scalars(select(PrivateProject))}
        rights, runs = acting.rights(), run_queries.runs(store, now, LIVE_STATES, limit=MOST_RUNS)
        live = [run for run in runs if run.project not in private and rights.sees(run.project)]
        yield from gauges(RUN, ("run", "name", "project"), [((run.id, run.name, run.project), run) for run in live])


def gauges(figures: Figures[T], names: Labels, subjects: Sequence[tuple[Labels, T]]) -> Iterator[Metric]:
    """Yield each of the figures with a sample for every subject, by the values of its labels, that has it."""
    for name, (text, read) in figures.items():
        unit = next((unit for unit in UNITS if name.endswith(f"_{unit}")), "")
        gauge = GaugeMetricFamily(name, text, labels=names, unit=unit)
        for labels, subject in subjects:
            value = read(subject)
            if isinstance(value, int | float):
                gauge.add_metric(labels, value)
        yield gauge


def gpus(node: str, load: dict[str, Any]) -> Iterator[tuple[Labels, dict[str, Any]]]:
    """Yield the GPUs of a node, as many and with labels as long as we accept."""
    by_id = {str(gpu.get("id"))[:LONGEST_LABEL]: gpu for gpu in load.get("gpus", ())[:MOST_GPUS]}
    for name, gpu in by_id.items():
        yield (node, name), gpu
