"""What Prometheus scrapes: the server, nodes and live runs, each figure only where it was read."""

from __future__ import annotations

import math
import re

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from prometheus_client.registry import Collector

from dashboard.api.prometheus import gauges, gpus
from domain.messages import NodeLoad
from domain.people.roles import Role
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import FakeNode, Running, wait_for


def values(families: list[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Each sample's value by its name and labels."""
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def named(metric: str, /, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return metric, frozenset(labels.items())


def test_nodes_and_live_runs_are_gauges(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(name='say "hi"')
    task = node.task()
    node.report(task, "running")
    node.log_points(task, 0, train__loss=[(7, 0.5, 100.0)])
    gpu = {"id": "GPU-a", "power_w": 540.0, "utilisation_percent": 25.0, "temperature_c": None}
    node.client.load(NodeLoad(cpu_percent=12.5, memory_total_bytes=64, gpus=[gpu, {"id": "GPU-b", "power_w": "low"}]))
    wait_for(lambda: dashboard.http.get("/api/nodes").json()[0]["load"], "the load to be stored")
    answer = dashboard.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    read = values(list(plain(answer.text)))
    run = {"run": run_id, "name": 'say "hi"', "project": "default"}
    assert read[named("rankzero_run_loss", **run)] == 0.5 and read[named("rankzero_run_step", **run)] == 7
    assert read[named("rankzero_runs", state="running")] == 1 and read[named("rankzero_runs", state="queued")] == 0
    assert read[named("rankzero_node_up", node="n0")] == 1 == read[named("rankzero_node_free_slots", node="n0")]
    assert read[named("rankzero_node_cpu_ratio", node="n0")] == 0.125
    assert read[named("rankzero_node_memory_size_bytes", node="n0")] == 64
    assert read[named("rankzero_gpu_power_watts", node="n0", gpu="GPU-a")] == 540
    assert read[named("rankzero_gpu_utilisation_ratio", node="n0", gpu="GPU-a")] == 0.25
    assert not [s for s, _ in read if s == "rankzero_gpu_temperature_celsius"]
    assert named("rankzero_gpu_power_watts", node="n0", gpu="GPU-b") not in read
    assert read[named("rankzero_store_up")] == 1 and read[named("process_cpu_seconds_total")] > 0
    assert answer.text.count("# TYPE rankzero_node_up gauge") == 1
    assert dashboard.anonymous().get("/metrics").status_code == 401


def test_people_read_of_their_own_projects_and_nobody_else(dashboard: Running, node: FakeNode) -> None:
    service = dashboard.service
    ours, theirs = dashboard.launch(project="vision"), dashboard.launch(project="speech")
    person(service, "sam", vision=Role.VIEWER)
    metrics_token = {"Authorization": f"Bearer {service.credentials.metrics}"}
    assert [run in dashboard.anonymous(**metrics_token).get("/metrics").text for run in (ours, theirs)] == [True, True]
    text = browser_of(dashboard, "sam").get("/metrics").text
    assert ours in text and theirs not in text and "speech" not in text
    refused = browser_of(dashboard, person(service, "new")).get("/metrics")
    assert refused.status_code == 403 and "rankzero_" not in refused.text
    wanted = {"name": "ci", "scope": "read", "project": "speech"}
    token = dashboard.http.post("/api/tokens", json=wanted).json()["token"]
    text = dashboard.anonymous(Authorization=f"Bearer {token}").get("/metrics").text
    assert theirs in text and ours not in text


@pytest.mark.parametrize("version", ["", ";version=1.0.0", ";version=1.0.0;escaping=allow-utf-8;q=0.6"])
def test_accept_chooses_openmetrics(shared: Running, version: str) -> None:
    accept = f"application/openmetrics-text{version},text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    answer = shared.http.get("/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = list(openmetrics(answer.text))  # refuses what is not conventional, such as a counter without _total
    assert families and all(family.documentation for family in families)


@pytest.mark.parametrize("accept", ["", "*/*", "text/html", "application/openmetrics-text;version=latest"])
def test_plain_text_is_the_default(shared: Running, accept: str) -> None:
    answer = shared.http.get("/metrics", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")


def test_names_are_conventional(shared: Running) -> None:
    for family in plain(shared.http.get("/metrics").text):
        assert re.fullmatch(r"(rankzero|process)_[a-z_]+", family.name) and family.type in ("gauge", "counter")
        assert family.type == "counter" or not family.name.endswith("_total"), family.name
        assert not re.search(r"_(percent|c|w|s|ms|mb|kb)$", family.name), family.name


class Given(Collector):
    """A collector of these metrics."""

    def __init__(self, *metrics: Metric) -> None:
        self.collect = lambda: metrics


def test_metrics_leave_out_unread_values_and_write_nan() -> None:
    figures = {"rankzero_run_loss": ("Loss.", lambda value: value)}
    subjects = [(("a",), math.nan), (("b",), math.inf), (("c",), None), (("d\n",), 1)]
    registry = CollectorRegistry()
    registry.register(Given(*gauges(figures, ("run",), subjects)))
    text = generate_latest(registry).decode()
    assert text.splitlines()[2:] == [
        'rankzero_run_loss{run="a"} NaN',
        'rankzero_run_loss{run="b"} +Inf',
        'rankzero_run_loss{run="d\\n"} 1.0',
    ]


def test_a_node_cannot_add_series_without_end() -> None:
    long = [{"id": "G" * 1000 + str(i), "power_w": 1.0} for i in range(3)]
    assert [labels for labels, _ in gpus("n0", {"gpus": long})] == [("n0", "G" * 200)]
    assert len(list(gpus("n0", {"gpus": [{"id": str(i)} for i in range(1000)]}))) == 64
