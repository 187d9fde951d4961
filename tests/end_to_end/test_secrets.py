"""A training gets its secret, tells it in every way there is, and afterwards no file of the server or node has it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.end_to_end.product import Product, contents_below, wait_for

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parent / "scripts/secretive.py"
WAITS = """
import os, pathlib, time
print(os.environ["HF_TOKEN"], flush=True)
pathlib.Path("ready").touch()
time.sleep(1000)
"""
TOKEN = 'hf_Kq7"zP/w+4Yt\\9vLm2'
HIDDEN = "*" * len(TOKEN)
FORMS = [TOKEN, json.dumps(TOKEN)[1:-1], repr(TOKEN)[1:-1], quote(TOKEN, safe=""), quote(TOKEN)]
TRACES = [form[:12].encode() for form in FORMS] + [form[-12:].encode() for form in FORMS]
TRACES += [base64.b64encode(f"user:{TOKEN}".encode())[7:25]]


def command(product: Product, *arguments: str, stdin: str = "") -> str:
    argv = [sys.executable, "-P", "-m", "cli.main", *arguments, "--data", str(product.data)]
    done = subprocess.run(argv, env=product.env, input=stdin, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def traces_in(content: bytes) -> list[bytes]:
    """What of the secret is in there, in whatever form."""
    return [trace for trace in TRACES if trace in content]


def files_with_traces(product: Product) -> dict[str, list[bytes]]:
    """Every file of the server and of the node that has something of it."""
    contents = [(product.log, product.log.read_bytes()), *contents_below(product.data)]
    return {str(path): traces for path, content in contents if (traces := traces_in(content))}


@pytest.fixture(scope="module")
def told(product: Product) -> Iterator[str]:
    """The run that told everything, and failed with it; its worker was killed meanwhile."""
    command(product, "secret", "set", "HF_TOKEN", stdin=f"{TOKEN}\n")
    command(product, "alert", "add", "failed", "--to", "browser")
    argv = ["launch", str(SCRIPT), "--gpus-per-node", "2", "--secret", "HF_TOKEN", "--json"]
    run_id = str(json.loads(command(product, *argv))["id"])
    work = product.data / f"runs/{run_id}/attempts/1/node0/work"
    log = f"/api/runs/{run_id}/logs?rank=0&stream=out"
    wait_for(lambda: b"two pieces: " in product.request("GET", log).content, "the first piece", explain=product.tail)
    worker = product.child("worker")
    assert worker is not None
    worker.send_signal(signal.SIGKILL)
    (work / "go").touch()
    product.wait_state(run_id)
    yield run_id
    for alert in product.get("/api/alerts"):
        product.request("DELETE", f"/api/alerts/{alert['id']}")
    command(product, "secret", "remove", "HF_TOKEN")


def test_the_training_had_the_right_value(product: Product, told: str) -> None:
    work = product.data / f"runs/{told}/attempts/1/node0/work"
    assert (work / "digest").read_text() == hashlib.sha256(TOKEN.encode()).hexdigest()


def test_no_file_of_the_server_or_node_has_it(product: Product, told: str) -> None:
    assert files_with_traces(product) == {}
    on_node = (product.data / f"runs/{told}/attempts/1/node0/logs/rank0.out").read_bytes()
    assert on_node == product.request("GET", f"/api/runs/{told}/logs?rank=0&stream=out").content


@pytest.mark.parametrize("killed", ["supervisor", "stopped"])
def test_the_nodes_files_are_masked_however_it_ends(product: Product, told: str, killed: str, tmp_path: Path) -> None:
    (script := tmp_path / "waits.py").write_text(WAITS)
    spec = {"strategy": "single", "launcher": "python", "gpus_per_node": 1, "secrets": ["HF_TOKEN"]}
    run_id = product.launch(script, **spec)
    folder = product.data / f"runs/{run_id}/attempts/1/node0"
    wait_for(lambda: (folder / "work/ready").exists(), "the script")
    assert traces_in((folder / "logs/rank0.out").read_bytes())  # as it was written, while it goes on
    if killed == "stopped":
        product.request("POST", f"/api/runs/{run_id}/stop").raise_for_status()
    else:
        os.kill(json.loads((folder / "supervisor.json").read_text())["pid"], signal.SIGKILL)
    product.wait_state(run_id)
    assert files_with_traces(product) == {}
    assert (folder / "logs/rank0.out").read_text() == f"{HIDDEN}\n"


def told_of(product: Product, run_id: str) -> str:
    """The sentence of the alert about a run; "" while there is none."""
    notices = product.get("/api/notifications")["notifications"]
    return next((notice["sentence"] for notice in notices if notice["run"] == run_id), "")


def test_what_is_shown_has_it_masked(product: Product, told: str) -> None:
    out = product.request("GET", f"/api/runs/{told}/logs?rank=0&stream=out").content.decode()
    assert f"one piece: {HIDDEN}\n" in out and f"two pieces: {HIDDEN} was it\n" in out
    run = product.run(told)
    assert run["state"] == "failed" and f"no access with {HIDDEN}" in run["message"]
    assert any(HIDDEN in name for name in product.get(f"/api/runs/{told}/metrics?source=events"))
    sentence = wait_for(lambda: told_of(product, told), "the alert's message")
    assert f"no access with {HIDDEN}" in sentence
    (task,) = product.get(f"/api/runs/{told}/attempts")[0]["tasks"]
    assert task["env"]["HF_TOKEN"] == "********"


def test_no_answer_export_archive_or_report_has_it(product: Product, told: str, tmp_path: Path) -> None:
    described = product.get("/api/openapi.json")["paths"]
    routes = {path for path, methods in described.items() if "get" in methods and "/worker/" not in path}
    paths = {path.replace("{run_id}", told) for path in routes}
    paths = {path for path in paths if "{" not in path}
    assert len(paths) > 30
    for path in sorted(paths):
        assert traces_in(product.request("GET", path).content) == [], path
    command(product, "export", told, "-o", str(archive := tmp_path / "run.zip"))
    with zipfile.ZipFile(archive) as members:
        assert all(traces_in(members.read(name)) == [] for name in members.namelist())
    link = product.request("POST", "/api/shared-links", json={"runs": [told]}).json()
    page = product.request("GET", link["url"].removeprefix(product.url))
    assert page.status_code == 200 and HIDDEN in page.text and traces_in(page.content) == []


def test_the_event_files_of_the_server_are_whole(product: Product, told: str) -> None:
    names = product.get(f"/api/runs/{told}/metrics?source=events")
    assert len(next(points for name, points in names.items() if name.endswith(f"loss/{HIDDEN}"))) == 20
    findings = [finding["kind"] for finding in product.get(f"/api/runs/{told}/findings")]
    assert "event file damaged" not in findings
