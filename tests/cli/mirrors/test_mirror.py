"""A mirror in MLflow gets every point once, however the server behaves; called again it goes on where it stopped."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli import main
from tests.cli.importers.conftest import imported
from tests.cli.importers.logged_runs import WALL, history, write_wandb
from tests.cli.mirrors.receiver import Receiver, receiving
from tests.end_to_end.product import free_port, wait_for

__all__ = ["imported"]
STEPS = 2500
Mirror = Callable[..., int]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def run_id(imported: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> str:
    """A run with two series and hyperparameters."""
    from wandb.proto.wandb_internal_pb2 import Record

    run = Record()
    run.run.display_name = "wide net"
    run.run.config.update.add(key="model", value_json='{"width": 4}')
    rows = [history(step, loss=1 / (step + 1), **{"acc@1": "NaN"}) for step in range(STEPS)]
    write_wandb(tmp_path / "past" / "run-abc.wandb", [run, *rows])
    (document,) = imported(tmp_path / "past")
    return str(document["id"])


def mirror(receiver: Receiver, run_id: str) -> int:
    return main.run(["mirror", run_id, "--to", receiver.url])


def assert_has_everything(receiver: Receiver) -> None:
    (run,) = receiver.runs
    assert receiver.points(run) == {
        "loss": [(step, 1 / (step + 1), (WALL * 2 + step) * 500) for step in range(STEPS)],
        "acc_1": [(step, "NaN", (WALL * 2 + step) * 500) for step in range(STEPS)],
    }
    assert receiver.runs[run]["run_name"] == "wide net" and receiver.runs[run]["status"] == "FAILED"
    assert receiver.runs[run]["params"]["model.width"] == "4"


def test_a_run_is_copied_once(receiver: Receiver, run_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["mirror", run_id, "--to", receiver.url, "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["id"], document["points"], document["is_ended"]) == (run_id, 2 * STEPS, True)
    assert_has_everything(receiver)
    assert main.run(["mirror", run_id, "--to", receiver.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["points"] == 0
    assert_has_everything(receiver)


def test_after_lost_answers_it_goes_on_where_it_stopped(receiver: Receiver, run_id: str) -> None:
    receiver.mode = "loses answers"
    exits = []
    while not exits or exits[-1] != 0:
        exits.append(mirror(receiver, run_id))
        assert len(exits) < 20
    assert 1 in exits
    receiver.mode = "honest"
    assert mirror(receiver, run_id) == 0
    assert_has_everything(receiver)


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("away", "answered 503"),
        ("nonsense", "is not MLflow"),
        ("lies", "accepted points of run"),
    ],
)
def test_mirror_says_what_is_wrong_with_the_server(
    receiver: Receiver, run_id: str, capsys: pytest.CaptureFixture[str], mode: str, sentence: str
) -> None:
    receiver.mode = mode
    assert mirror(receiver, run_id) == 1
    said = capsys.readouterr().err
    assert sentence in said and "Run the same command again to continue." in said
    receiver.mode = "honest"
    assert mirror(receiver, run_id) == 0
    (run,) = receiver.runs
    assert len(receiver.points(run)["loss"]) == STEPS


@pytest.mark.parametrize("url", ["mlflow:5000", "http://me:secret@localhost"])
def test_an_odd_address_is_refused_without_its_password(
    run_id: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["mirror", run_id, "--to", url]) == 2
    assert "secret" not in capsys.readouterr().err


READER = """
import json, sys, mlflow
client = mlflow.MlflowClient(sys.argv[1])
(experiment,) = client.search_experiments(filter_string="name = 'default'")
(run,) = client.search_runs([experiment.experiment_id])
history = client.get_metric_history(run.info.run_id, "loss")
points = [[point.step, point.value, point.timestamp] for point in history]
print(json.dumps({"points": points, "status": run.info.status, "params": run.data.params}))
"""


SERVER = """
import os, sys
os.environ["_MLFLOW_SERVER_FILE_STORE"] = sys.argv[1]
os.environ["_MLFLOW_SERVER_ARTIFACT_ROOT"] = "artifacts"
from mlflow.server import app
app.run(port=int(sys.argv[2]))
"""
"""MLflow's own server in one process: its command starts a dozen, which takes minutes."""


@pytest.mark.long
def test_mlflow_itself_has_every_point(run_id: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("mlflow") is None:
        pytest.skip("mlflow is not installed")
    url = f"http://127.0.0.1:{(port := free_port())}"
    argv = [sys.executable, "-c", SERVER, f"sqlite:///{tmp_path}/team.db", str(port)]
    with (tmp_path / "log").open("wb") as log:
        server = psutil.Popen(argv, cwd=tmp_path, stdout=log, stderr=log)
    try:
        wait_for(
            lambda: main.run(["mirror", run_id, "--to", url]) == 0 or server.poll() is not None,
            "MLflow to take the run",
            180,
            (tmp_path / "log").read_text,
        )
        assert server.poll() is None, (tmp_path / "log").read_text()
        reading = [sys.executable, "-c", READER, url]
        env = os.environ | {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "60"}
        read = subprocess.run(reading, env=env, check=True, capture_output=True, timeout=300)
        theirs = json.loads(read.stdout)
    finally:
        processes = [server, *server.children(recursive=True)]
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=30)
    assert theirs["points"] == [[step, 1 / (step + 1), (WALL * 2 + step) * 500] for step in range(STEPS)]
    assert theirs["status"] == "FAILED" and theirs["params"]["model.width"] == "4"
