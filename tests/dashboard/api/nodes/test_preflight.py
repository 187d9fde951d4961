"""Preflights on demand: asked by a person or the command line, answered by workers' own code."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import main
from db.preflight import preflight_sessions
from domain.messages import NodeCheck
from tests.dashboard.running import LIMIT_S, FakeNode, Running
from tests.domain.preflight.node_checks import GOOD, way
from worker.launch import interpreter
from worker.launch.preparation import LocalNode
from worker.preflight import node_check
from worker.preflight.checks import Checks
from worker.session.failures import ServerAway

SERVER_LIMITS = ("ANSWER_LIMIT_S", "REACH_LIMIT_S", "MEASURE_LIMIT_S")


class Answering:
    """A node that takes part in preflights, as a worker's threads do."""

    def __init__(self, node: FakeNode, data: Path, python: str) -> None:
        at_home = LocalNode(name=node.facts.name, data_dir=data, python=python, interface="lo")
        self._client, self._ends = node.client, threading.Event()
        self._checks = Checks(at_home, node.client, lambda work: threading.Thread(target=work).start(), [])
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        version = None
        while not self._ends.is_set():
            try:
                desired = self._client.desired_state(version, 0.2)
            except ServerAway:
                continue
            version = desired.version
            self._checks.set_desired_checks(desired.checks)

    def end(self) -> None:
        """And its door with it."""
        self._ends.set()
        self._thread.join()
        self._checks.set_desired_checks([])


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is late, however long this machine stands still."""
    query = interpreter._query
    monkeypatch.setattr(interpreter, "_query", lambda path, env, limit_s: query(path, env, LIMIT_S))
    for module, names in ((node_check, ("CONNECT_LIMIT_S", "ANSWER_LIMIT_S")), (preflight_sessions, SERVER_LIMITS)):
        for name in names:
            monkeypatch.setattr(module, name, LIMIT_S)


@pytest.fixture
def nodes(dashboard: Running, tmp_path: Path) -> Iterator[list[Answering]]:
    answering = [Answering(dashboard.node(name), tmp_path, sys.executable) for name in ("gpu-1", "gpu-2")]
    yield answering
    for each in answering:
        each.end()


@pytest.fixture
def rankzero(dashboard: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def run(*arguments: str) -> tuple[int, str]:
        capfd.readouterr()
        return main.run(list(arguments)), capfd.readouterr().out

    return run


def test_two_nodes_are_asked_and_all_is_well(nodes, rankzero, dashboard) -> None:
    code, out = rankzero("preflight", "--json")
    answering = json.loads(out)
    assert code == 0, out
    assert answering["nodes"] == ["gpu-1", "gpu-2"] and {cell["state"] for cell in answering["cells"]} == {"ok"}
    assert {"alive", "torch", "port", "reach", "clock"} <= {cell["row"] for cell in answering["cells"]}
    (kept,) = dashboard.http.get("/api/preflight").json()
    assert kept == dashboard.http.get(f"/api/preflight/{kept['id']}").json() == answering


def test_a_red_cell_is_exit_code_1_and_told_with_its_fix(nodes, rankzero, dashboard, tmp_path) -> None:
    third = Answering(dashboard.node("gpu-3"), tmp_path, "/nowhere/python")
    code, out = rankzero("preflight", "gpu-1", "gpu-3")
    third.end()
    assert code == 1
    assert "RED   interpreter, gpu-3: The interpreter /nowhere/python does not exist" in out
    assert "gpu-2" not in out


def test_a_run_that_may_not_start_shows_its_cells(dashboard, rankzero) -> None:
    first, second = dashboard.node("gpu-1"), dashboard.node("gpu-2")
    run_id = dashboard.launch(nodes=2)
    endpoint = {"master_addr": "10.0.0.1", "master_port": 4711}
    first.report(first.task(), "starting", preflight=NodeCheck(**GOOD), **endpoint)
    silent = way(trouble="silent", problem="no answer in 2 s")
    assert second.report(second.task(), "starting", preflight=NodeCheck(**GOOD | {"reached": [silent]})) == "failed"
    shown = json.loads(rankzero("show", run_id, "--json")[1])
    (cell,) = (cell for cell in shown["preflight"]["cells"] if cell["state"] == "failed")
    assert (cell["row"], cell["node"], cell["peer"]) == ("reach", "gpu-2", "gpu-1")
    out = rankzero("show", run_id)[1]
    assert "RED   reach, gpu-2 → gpu-1: no answer in 2 s at 10.0.0.1:4711. A firewall" in out
    alone = dashboard.launch(nodes=1)
    assert json.loads(rankzero("show", alone, "--json")[1])["preflight"] is None


def test_who_does_not_exist_is_not_asked(dashboard, rankzero) -> None:
    assert rankzero("preflight", "nobody")[0] == 1
    assert dashboard.http.post("/api/preflight", json={"nodes": ["nobody"]}).status_code == 404
    assert dashboard.http.get("/api/preflight/7").status_code == 404
    refused = dashboard.http.post("/api/preflight", json={})
    assert (refused.status_code, refused.json()["detail"]["field"]) == (422, "nodes")
