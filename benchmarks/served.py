"""A dashboard in a process of its own with live runs of one node, for clients that report as a worker does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from dashboard.service.service import Service
from dashboard.settings import Settings
from db.nodes.node_reports import register_node
from db.runs import run_requests
from domain.messages import Device, NodeFacts
from domain.spec import RunSpec

SPEC = RunSpec(target="image_classifier", gpus_per_node=1)


@dataclass(frozen=True)
class Served:
    """A dashboard, and what a client needs to speak with it."""

    process: psutil.Process
    worker: httpx2.Client
    """Speaks as the node."""
    user: httpx2.Client
    fences: list[int]
    """One for each live run, in the order of `runs`."""
    runs: list[str]


@contextmanager
def served(data: Path, runs: int = 1, queued: int = 0) -> Iterator[Served]:
    """Fill a store with that many live runs, and others that wait for their devices, and serve it."""
    service = Service.open(Settings(data=data))
    token, user = _register(service, runs), service.credentials.user
    ids = [service.launch(SPEC) for _ in range(runs)]
    fence_of = {task.run_id: task.fence for task in service.assignments(service.nodes()[0].id)[0]}
    for number in range(queued):
        run_requests.submit(service.store, SPEC.model_copy(update={"seed": number}), service.clock())
    service.schedule()
    service.close()
    with dashboard(data) as (process, url):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with (
            httpx2.Client(base_url=url, headers=headers, timeout=60) as worker,
            httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {user}"}, timeout=60) as reader,
        ):
            yield Served(process, worker, reader, [fence_of[run] for run in ids], ids)


def _register(service: Service, slots: int) -> str:
    devices = [Device(id=f"cpu:{number}", kind="cpu", name="CPU slot") for number in range(slots)]
    facts = NodeFacts(name="node-1", instance_id="i", hostname="h", address="10.0.0.1", devices=devices)
    return register_node(service.store, facts, None, service.clock()).token


@contextmanager
def dashboard(data: Path) -> Iterator[tuple[psutil.Process, str]]:
    """Serve that data directory; yields the process and the address. It has ended afterwards."""
    command = [sys.executable, "-P", "-m", "cli.main", "dashboard", "--data", str(data), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while not (data / "server.json").exists():
                assert process.poll() is None, "the dashboard ended before it served"
                time.sleep(0.1)
            port = json.loads((data / "server.json").read_text())["port"]
            yield psutil.Process(process.pid), f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
