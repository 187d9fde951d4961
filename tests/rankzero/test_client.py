"""A script asks a dashboard: runs, curves, logs, checkpoints, launches, and what fails."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

import rankzero
from domain.clients.logins import Login
from domain.messages import Finding, Findings
from tests.dashboard.running import FakeNode, Running
from worker.session.client import TaskRef


@pytest.fixture
def client(dashboard: Running) -> Iterator[rankzero.Client]:
    """A connection to the test's dashboard."""
    with rankzero.connect(dashboard.url, dashboard.token) as client:
        yield client


@pytest.fixture
def task(dashboard: Running, node: FakeNode) -> TaskRef:
    """The task of a run named digits that trains."""
    dashboard.launch(name="digits", gpus_per_node=1)
    node.report(node.task(), "running")
    return node.task()


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, rankzero; print([m for m in ('httpx2', 'pydantic', 'numpy', 'asyncio') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_runs_are_found_by_search_and_name(client: rankzero.Client, task: TaskRef, dashboard: Running) -> None:
    other = dashboard.launch(name="other", gpus_per_node=1)
    assert [run.name for run in client.runs()] == ["other", "digits"]
    assert [run.id for run in client.runs("state:running")] == [client.run("digits").id]
    assert client.run("latest").id == client.run(other).id == other
    assert [run.name for run in client.runs(limit=1)] == ["other"]


def test_fields_of_a_run_are_attributes(client: rankzero.Client, task: TaskRef, node: FakeNode) -> None:
    run = client.run("digits")
    assert (run.state, run.step, run.spec.target) == ("running", None, "image_classifier")
    node.log_points(task, 0, train__loss=[(7, 0.5, 1e9)])
    assert run.refresh().step == 7 and "last_loss" in dir(run) and run.to_dict()["last_loss"] == 0.5
    assert repr(run) == f"Run({run.id!r}, 'digits', 'running', step=7)"
    with pytest.raises(AttributeError, match="Run has no field 'lost'; it has id, name, "):
        run.lost  # noqa: B018


def test_curves_are_arrays(client: rankzero.Client, task: TaskRef, node: FakeNode) -> None:
    node.log_points(task, 0, train__loss=[(1, 0.5, 10.0), (2, math.nan, 11.0)], acc=[(2, 0.9, 11.0)])
    metrics = client.run("digits").metrics()
    assert metrics["train/loss"].shape == (2, 3) and metrics["train/loss"].dtype == numpy.float64
    numpy.testing.assert_array_equal(metrics["train/loss"], [[1, 0.5, 10.0], [2, math.nan, 11.0]])
    assert [*client.run("digits").metrics("acc")] == ["acc"]
    assert client.run("digits").metrics("train/loss", since=2)["train/loss"][:, 0].tolist() == [2]
    table = metrics.to_pandas()
    assert table.index.name == "step" and table.index.tolist() == [1, 2]
    pandas.testing.assert_series_equal(table["acc"], pandas.Series([math.nan, 0.9], index=table.index, name="acc"))


def test_curves_are_lists_without_numpy(
    client: rankzero.Client, task: TaskRef, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.log_points(task, 0, acc=[(2, math.inf, 11.0)])
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert client.run("digits").metrics()["acc"] == [(2, math.inf, 11.0)]


def test_logs_are_text(client: rankzero.Client, task: TaskRef, node: FakeNode) -> None:
    node.append(task, "logs/rank0.err", 0, 0, b"warning\n")
    node.append(task, "logs/rank0.out", 0, 0, "größer \xff\n".encode("latin-1"))
    assert client.run("digits").logs(stream="err") == "warning\n"
    assert (
        client.run("digits").logs()
        == "gr\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}er \N{REPLACEMENT CHARACTER}\n"
    )


def test_a_checkpoint_is_downloaded_and_verified(
    client: rankzero.Client, task: TaskRef, node: FakeNode, tmp_path: Path
) -> None:
    run = client.run("digits")
    with pytest.raises(rankzero.Refused, match=rf"Run {run.id} has no checkpoint yet"):
        run.download(tmp_path)
    node.store_checkpoint(task, b"weights", "work/step1.pt")
    assert [one.name for one in run.checkpoints()] == ["work/step1.pt"]
    part = tmp_path / f".step1.pt.{hashlib.sha256(b'weights').hexdigest()[:12]}.part"
    part.write_bytes(b"wei")
    path = run.download(tmp_path, "step1.pt")
    assert path == tmp_path / "step1.pt" and path.read_bytes() == b"weights" and not part.exists()
    path.write_bytes(b"another")
    assert run.download(path, "step1.pt").read_bytes() == b"weights"


def test_a_script_waits(client: rankzero.Client, task: TaskRef, node: FakeNode) -> None:
    node.log_points(task, 0, val__loss=[(3, 0.1, 1e9)])
    run = client.run("digits")
    assert run.wait("val/loss < 0.2").step == 3
    with pytest.raises(TimeoutError, match=r"'ended' has not come within 0 s; run .* continues"):
        run.wait(timeout=0)
    node.client.findings(task, Findings(findings=[Finding(kind="hung", evidence="no step")]))
    assert run.wait("finding").findings()[0].kind == "hung"
    node.report(task, "failed", exit_code=1)
    assert run.wait().state == "failed"
    with pytest.raises(rankzero.NeverReached, match="has ended, and 'step > 1e9' never came"):
        run.wait("step > 1e9")


def test_runs_are_launched_stopped_and_resumed(client: rankzero.Client, node: FakeNode) -> None:
    run = client.launch({"target": "image_classifier", "gpus_per_node": 1}, name="mine")
    assert (run.name, run.spec.target) == ("mine", "image_classifier")
    node.report(node.task(), "running")
    assert run.stop("enough").stop_requested_at is not None
    node.report(node.task(), "stopped", exit_code=-15)
    assert run.resume().attempt == 2


def test_a_path_that_is_here_is_sent_whole(
    client: rankzero.Client, node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    assert client.launch(target="train.py", gpus_per_node=1).spec.target == str(tmp_path / "train.py")
    assert client.launch("train.py", gpus_per_node=1).spec.target == str(tmp_path / "train.py")


def test_a_sweep_is_made_and_stopped(client: rankzero.Client, node: FakeNode) -> None:
    spec = {"target": "image_classifier", "gpus_per_node": 1}
    sweep = client.sweep(spec, {"lr": {"values": [0.1, 0.01]}}, "val/loss", search="grid")
    assert (sweep.trials_planned, sweep.metric) == (2, "val/loss")
    assert sweep.stop().state == "stopping" and sweep.refresh().id == sweep.id


def test_nodes_are_listed(client: rankzero.Client, node: FakeNode) -> None:
    (listed,) = client.nodes()
    assert (listed.name, len(listed.devices)) == ("n0", 2)


def test_failures_are_exceptions_with_the_sentence_of_the_server(
    client: rankzero.Client, dashboard: Running, node: FakeNode
) -> None:
    with pytest.raises(rankzero.NotFound, match="There is no run 'none'") as absent:
        client.run("none")
    assert (absent.value.status, absent.value.field) == (404, "run")
    with pytest.raises(rankzero.Refused, match="nodes") as wrong:
        client.launch(target="image_classifier", nodes=0)
    assert (wrong.value.status, wrong.value.field) == (422, "nodes")
    with pytest.raises(rankzero.Refused, match="does not accept this token, which is from the argument") as unknown:
        rankzero.connect(dashboard.url, "rz_wrong").nodes()
    assert unknown.value.status == 401 and isinstance(unknown.value, rankzero.RankzeroError)
    with pytest.raises(rankzero.Refused, match="is no condition"):
        client.launch(target="image_classifier").wait("soon")
    with pytest.raises(rankzero.Away, match=r"No dashboard answers at http://127.0.0.1:1") as away:
        rankzero.connect("http://127.0.0.1:1", "x").nodes()
    assert away.value.status == 0
    with pytest.raises(rankzero.Refused, match=r"url must begin with http:// or https://, got 'gpu-1'"):
        rankzero.connect("gpu-1", "x")


def test_the_dashboard_is_found_as_the_command_line_finds_it(
    dashboard: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANKZERO_URL", "RANKZERO_TOKEN", "RANKZERO_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data home"))
    with pytest.raises(rankzero.Refused, match="No dashboard runs on"):
        rankzero.connect()
    token = tmp_path / "token"
    token.write_text(f"{dashboard.token}\n")
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    with pytest.raises(rankzero.Refused, match=r"RANKZERO_URL needs `rankzero login"):
        rankzero.connect()
    assert rankzero.connect(token=dashboard.token).nodes() == []
    monkeypatch.setenv("RANKZERO_TOKEN_FILE", str(token))
    assert rankzero.connect().nodes() == []
    monkeypatch.setenv("RANKZERO_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(rankzero.Refused, match=r"RANKZERO_TOKEN_FILE: .*none cannot be read: No such file"):
        rankzero.connect()


def test_a_login_counts(dashboard: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cli.server.logins import Logins

    for name in ("RANKZERO_URL", "RANKZERO_TOKEN", "RANKZERO_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    Logins().keep(Login(dashboard.url, dashboard.token, "laptop", "owner"))
    assert rankzero.connect().nodes() == [] and rankzero.connect(dashboard.url).url == dashboard.url


REQUESTS: dict[str, tuple[str, str]] = {
    "Client.runs": ("get", "/api/runs"),
    "Client.launch": ("post", "/api/runs"),
    "Client.sweep": ("post", "/api/sweeps"),
    "Client.nodes": ("get", "/api/nodes"),
    "Run.metrics": ("get", "/api/runs/{run_id}/metrics"),
    "Run.logs": ("get", "/api/runs/{run_id}/logs"),
    "Run.checkpoints": ("get", "/api/runs/{run_id}/checkpoints"),
    "Run.findings": ("get", "/api/runs/{run_id}/findings"),
    "Run.wait": ("get", "/api/runs/{run_id}/wait"),
    "Run.stop": ("post", "/api/runs/{run_id}/stop"),
    "Run.resume": ("post", "/api/runs/{run_id}/resume"),
    "Sweep.stop": ("post", "/api/sweeps/{study_id}/stop"),
}
"""The request behind each method whose parameters are those of the API."""
OWN = {"self", "spec", "fields", "options"}


def names_of(document: dict[str, Any], method: str, path: str) -> set[str]:
    """The parameters that the API's description has of a request, those of its body among them."""
    request = document["paths"][path][method]
    names = {parameter["name"] for parameter in request.get("parameters", ())}
    content = request.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for schema in (content, *content.get("anyOf", ()), *content.get("allOf", ())):
        reference = schema.get("$ref", "").rpartition("/")[2]
        names |= document["components"]["schemas"].get(reference, schema).get("properties", {}).keys()
    return names


def test_names_and_parameters_are_those_of_the_api(dashboard: Running) -> None:
    import inspect

    document = dashboard.http.get("/api/openapi.json").json()
    for place, (method, path) in REQUESTS.items():
        kind, _, name = place.partition(".")
        parameters = inspect.signature(getattr(getattr(rankzero, kind), name)).parameters.keys() - OWN
        assert parameters - names_of(document, method, path) == set(), place
