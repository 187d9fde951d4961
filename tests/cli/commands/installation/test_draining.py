"""A node drains on request: by the API, the command line, and while the queue looks for room."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cli import main
from tests.dashboard.fake_dashboard import RUN, TOKEN, FakeDashboard, serving
from tests.dashboard.running import FakeNode, Running


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDashboard]:
    with serving(FakeDashboard()) as fake:
        monkeypatch.setenv("RANKZERO_URL", fake.url)
        monkeypatch.setenv("RANKZERO_TOKEN", TOKEN)
        yield fake


def test_drained_node_goes_on_training_and_starts_nothing(dashboard: Running, node: FakeNode) -> None:
    running = dashboard.launch()
    drained = dashboard.http.post("/api/nodes/n0/drain").json()
    assert (drained["name"], drained["draining"], drained["free"]) == ("n0", True, 0)
    waiting = dashboard.launch()
    assert dashboard.run(waiting)["waiting_for"] == "needs 1 slot; n0 is draining"
    assert node.report(node.task(), "running") == "running"
    assert dashboard.run(running)["state"] == "running"
    assert dashboard.http.post(f"/api/nodes/{drained['id']}/undrain").json()["draining"] is False
    assert dashboard.run(waiting)["state"] == "starting"


def test_a_node_that_is_not_there_is_told(dashboard: Running) -> None:
    answer = dashboard.http.post("/api/nodes/n7/drain")
    assert answer.status_code == 404
    assert answer.json()["detail"]["message"] == "There is no node 'n7'."


def test_the_command_line_says_what_goes_on_there(fake: FakeDashboard, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["drain", "gpu 3/a"]) == 0
    assert capsys.readouterr().out == (
        f"Node gpu-3 is draining: nothing new starts there; 1 run there continues to its end: {RUN['id']}.\n"
    )
    assert main.run(["undrain", "gpu-3"]) == 0
    assert capsys.readouterr().out == "Node gpu-3 accepts new runs again.\n"
    assert main.run(["drain", "gpu-3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["draining"] is True
    assert fake.asked[:2] == [("GET", "/api/nodes/gpu 3/a/drain"), ("POST", "/api/nodes/gpu 3/a/drain")]
