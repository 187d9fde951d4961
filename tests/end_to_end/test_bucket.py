"""Checkpoints in a bucket, with real processes: kills in mid-upload, a bucket that is away, a resume elsewhere."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.kills import kill_and_wait_for_another
from tests.end_to_end.product import WAIT_S, Product, wait_for
from tests.s3_server import Bucket

pytestmark = pytest.mark.long
SCRIPT = Path(__file__).parent / "scripts" / "saves_once.py"
MIB = 160
ALONE = {"gpus_per_node": 1, "launcher": "python", "strategy": "single"}


@pytest.fixture
def stored(bucket: Bucket, tmp_path: Path) -> Iterator[Product]:
    """A product whose checkpoints go to the bucket."""
    env = bucket.server.environment | {"RANKZERO_CHECKPOINTS_URL": bucket.url}
    running = Product(tmp_path / "data", env=env)
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()


def checkpoint(product: Product, run_id: str) -> Any:
    """The only one of the run, once it is known."""
    shown = product.get(f"/api/runs/{run_id}/checkpoints")
    assert len(shown) <= 1
    return shown[0] if shown else None


def whole(product: Product, run_id: str) -> Any:
    return wait_for(
        lambda: (shown := checkpoint(product, run_id)) and shown["complete"] and shown,
        "the checkpoint to be whole",
        explain=product.tail,
    )


def test_an_upload_goes_on_after_kills_of_worker_and_server(stored: Product, bucket: Bucket, tmp_path: Path) -> None:
    gate, uploads = threading.Semaphore(2), set[str]()

    def slowly(method: str, path: str) -> None:
        if "partNumber" in path:
            uploads.update(re.findall(r"uploadId=([^&]+)", path))
            gate.acquire(timeout=60)

    bucket.server.refuse = slowly  # type: ignore[assignment]
    release = tmp_path / "told"
    run_id = stored.launch(SCRIPT, args=[str(release), str(MIB)], **ALONE)
    for name in ("worker", "dashboard", "worker"):
        (key,) = wait_for(lambda: bucket.uploads, "an upload", explain=stored.tail)
        there = len(bucket.parts(key))
        gate.release(2)
        wait_for(lambda k=key, n=there: len(bucket.parts(k)) > n, "a part", explain=stored.tail)
        kill_and_wait_for_another(stored, name)
    for _ in range(100):
        gate.release()
    shown = whole(stored, run_id)
    (key,) = bucket.keys
    assert bucket.uploads == []
    assert len(uploads) == 1  # gone on with, never begun anew
    got = fetched(stored, run_id, tmp_path)
    assert hashlib.sha256(got.read_bytes()).hexdigest() == shown["sha256"]
    assert bucket.content(key) == got.read_bytes()
    release.touch()
    assert stored.wait_state(run_id)["state"] == "succeeded"
    assert stored.request("DELETE", f"/api/runs/{run_id}?now=true").status_code == 200
    wait_for(lambda: not bucket.keys, "the bucket to be empty", explain=stored.tail)


def fetched(product: Product, run_id: str, folder: Path) -> Path:
    """As a person has it."""
    target = folder / "downloaded"
    command = [sys.executable, "-P", "-m", "cli.main", "download", run_id, "-o", str(target)]
    done = subprocess.run([*command, "--data", str(product.data)], capture_output=True, text=True, env=product.env)
    assert done.returncode == 0, done.stderr
    return target


def test_a_run_ends_when_its_bucket_is_back(stored: Product, bucket: Bucket, tmp_path: Path) -> None:
    release = tmp_path / "told"
    bucket.server.stop()
    try:
        run_id = stored.launch(SCRIPT, args=[str(release), "20"], **ALONE)
        release.touch()
        waiting = wait_for(
            lambda: (shown := checkpoint(stored, run_id)) and shown["trouble"],
            "the trouble",
            explain=stored.tail,
        )
        assert "cannot be reached" in waiting
        assert stored.run(run_id)["state"] == "running"
        lines = [each["text"] for each in stored.get(f"/api/runs/{run_id}/history")]
        assert sum("large.safetensors waits: The bucket" in line for line in lines) == 1
    finally:
        bucket.server.start()
    assert stored.wait_state(run_id)["state"] == "succeeded"
    assert whole(stored, run_id)["trouble"] is None


def test_another_node_resumes_from_the_bucket(stored: Product, bucket: Bucket, tmp_path: Path) -> None:
    release = tmp_path / "told"
    run_id = stored.launch(SCRIPT, args=[str(release), "40"], **ALONE)
    shown = whole(stored, run_id)
    release.touch()
    stored.wait_state(run_id)
    release.unlink()
    (first,) = stored.get("/api/nodes")
    assert stored.request("POST", f"/api/nodes/{first['name']}/drain").status_code == 200
    token = (stored.data / "join-token").read_text().strip()
    argv = [sys.executable, "-P", "-m", "cli.main", "worker", "--server", stored.url, "--name", "second"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    other = stored.data / "of-another-machine"
    with (tmp_path / "second.log").open("wb") as log:
        worker = subprocess.Popen(
            [*argv, "--slots", "1", "--data", str(other)],
            env=env | {"RANKZERO_TOKEN": token},
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: len(stored.get("/api/nodes")) == 2, "the second node", explain=stored.tail)
        bucket.server.asked.clear()
        assert stored.request("POST", f"/api/runs/{run_id}/resume").status_code == 200
        log_file = other / f"runs/{run_id}/attempts/2/node0/logs/rank0.out"
        said = wait_for(lambda: log_file.exists() and log_file.read_text(), "its first line", explain=stored.tail)
        assert said.split() == ["resumes", "from", shown["sha256"]]
        assert bucket.server.asked["GET other"] >= 1
        release.touch()
        assert stored.wait_state(run_id)["state"] == "succeeded"
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(WAIT_S)
