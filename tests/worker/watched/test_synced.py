"""What a command left is sent to the real application, once, whatever is cut meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.dashboard.running import Running
from tests.worker.watched.left import left_behind
from worker.session.client import Client
from worker.session.failures import broken_off
from worker.watched.companion import Companion
from worker.watched.folder import WATCH_FILE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return left_behind(tmp_path / "data", tmp_path / "cwd")


def run_of(dashboard: Running) -> dict[str, Any]:
    (run,) = dashboard.http.get("/api/runs").json()
    return dict(run)


def points_of(dashboard: Running) -> list[list[float]]:
    series = dashboard.http.get(f"/api/runs/{run_of(dashboard)['id']}/metrics").json()
    return [point[:2] for point in series["train/loss"]]


def test_an_ended_command_becomes_a_run_with_its_points_and_end(dashboard: Running, folder: Path) -> None:
    companion = Companion(folder, lambda token: dashboard.client(token or dashboard.token))
    assert companion.run()
    run = run_of(dashboard)
    assert (run["state"], run["name"], run["step"]) == ("succeeded", "train", 4)
    assert points_of(dashboard) == [[step, step * 0.5] for step in range(5)]
    assert not folder.exists() and dashboard.http.get("/api/nodes").status_code == 200


@pytest.mark.parametrize("cut_after", [1, 3, 5, 8])
def test_a_cut_at_any_request_loses_and_doubles_nothing(
    dashboard: Running, folder: Path, cut_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []

    def cut(client: Client, *arguments: Any, **options: Any) -> httpx2.Response:
        requests.append(arguments)
        response = request(client, *arguments, **options)
        if len(requests) > cut_after:  # it was done, but nobody hears of it
            raise broken_off(httpx2.ConnectError("cut"), client.url)
        return response

    request = Client._request
    with monkeypatch.context() as patched:
        patched.setattr(Client, "_request", cut)
        first = Companion(folder, lambda token: dashboard.client(token or dashboard.token), patience_s=2.0)
        assert first.run() is False
    assert folder.exists()
    assert Companion(folder, lambda token: dashboard.client(token or dashboard.token)).run()
    assert run_of(dashboard)["state"] == "succeeded"
    assert points_of(dashboard) == [[step, step * 0.5] for step in range(5)]


def test_each_process_of_a_run_is_read_in_its_own_folder(dashboard: Running, tmp_path: Path) -> None:
    """The run's folder is that of whichever process asked for a place first, here of one that wrote nothing."""
    second = in_run(left_behind(tmp_path / "b", tmp_path / "cwd-b", steps=0), process=1)
    first = in_run(left_behind(tmp_path / "a", tmp_path / "cwd-a"), process=0)
    for folder in (second, first):
        Companion(folder, lambda token: dashboard.client(token or dashboard.token)).run()
    assert run_of(dashboard)["spec"]["workdir"] == str(tmp_path / "cwd-b")
    assert points_of(dashboard) == [[step, step * 0.5] for step in range(5)]


def in_run(folder: Path, process: int) -> Path:
    """Make a command one of two processes that share a run."""
    file = folder / WATCH_FILE
    told = json.loads(file.read_text())
    shared = {"key": "job 7", "is_lasting": True, "process": process, "processes": 2}
    file.write_text(json.dumps(told | shared))
    return folder
