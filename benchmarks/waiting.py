"""What it costs the server that a thousand workers wait for work while one run reports.

    .venv/bin/python benchmarks/waiting.py --nodes 1000 --reports 60

A real dashboard in a process of its own; workers are bare sockets here, each with its question for work waiting and a
second connection for its load. Measured is the processor time of the dashboard, so that a busy machine does not blur
it: first while nobody reports, then with the reports of a run on one node, in one answer after another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import psutil

from benchmarks.served import dashboard
from dashboard.app.server import most_connections
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.nodes.node_reports import register_node
from domain.messages import Device, NodeFacts
from domain.spec import RunSpec

QUIET_S = 3.0
PAUSE_S = 0.1
SAMPLE = json.dumps({"cpu_percent": 50.0})
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--reports", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        tokens, fence = fill(data, options.nodes)
        with dashboard(data) as (process, url):
            asyncio.run(measure(process, int(url.rpartition(":")[2]), tokens, fence, options.reports))


def fill(data: Path, nodes: int) -> tuple[list[str], int]:
    """Nodes with a slot each, and a run on the first of them."""
    service = Service.open(Settings(data=data))
    now = service.clock()
    tokens = []
    for number in range(nodes):
        device = Device(id="cpu:0", kind="cpu", name="CPU slot")
        facts = NodeFacts(name=f"n{number:04}", instance_id="i", hostname="h", address="10.0.0.1", devices=[device])
        tokens.append(register_node(service.store, facts, None, now).token)
        if number == 0:
            service.launch(RunSpec(target="image_classifier", gpus_per_node=1))
            ((assignment,), _) = service.assignments(service.nodes()[0].id)
    service.close()
    return tokens, assignment.fence


async def measure(process: psutil.Process, port: int, tokens: list[str], fence: int, reports: int) -> None:
    most_connections()  # raises the limit of open files for this process as well
    waiting = [await ask_for_work(port, token) for token in tokens]
    loads = [await connected(port) for _ in tokens]
    for (reader, writer), token in zip(loads, tokens, strict=True):
        assert await asked(reader, writer, "POST", "/api/worker/load", token, SAMPLE) == 200
    print(f"{2 * len(tokens)} connections of {len(tokens)} workers: {size(process)} resident")
    spent_s = cpu_s(process)
    await asyncio.sleep(QUIET_S)
    quiet = (cpu_s(process) - spent_s) / QUIET_S
    print(f"nobody reports: {quiet:.1%} of a core")
    spent_s, began = cpu_s(process), time.monotonic()
    reader, writer = loads[0]
    answers_s = []
    for number in range(reports):
        state = "starting" if number < reports // 2 else "running"
        asked_at = time.monotonic()
        path = f"/api/worker/attempts/{fence}/tasks/0/report"
        assert await asked(reader, writer, "POST", path, tokens[0], json.dumps({"state": state, "pid": number})) == 200
        answers_s.append(time.monotonic() - asked_at)
        await asyncio.sleep(PAUSE_S)
    each_s = (cpu_s(process) - spent_s - quiet * (time.monotonic() - began)) / reports
    slowest = sorted(answers_s)[int(0.95 * reports)]
    print(f"a report: {each_s * 1e3:.1f} ms of a core; answered within {slowest * 1e3:.0f} ms (p95)")
    for _, each in [*waiting, *loads]:
        each.close()


async def ask_for_work(port: int, token: str) -> Streams:
    """A worker whose question waits: it has the newest list already, so the first answer's version is asked with."""
    reader, writer = await connected(port)
    body = await answer(reader, writer, "GET", "/api/worker/desired?wait=0", token)
    version = json.loads(body)["version"]
    writer.write(request("GET", f"/api/worker/desired?wait=60&version={version}", token))
    return reader, writer


async def connected(port: int) -> Streams:
    return await asyncio.open_connection("127.0.0.1", port)


async def asked(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    path: str,
    token: str,
    body: str = "",
) -> int:
    writer.write(request(method, path, token, body))
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(length(head))
    return int(head.split()[1])


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, token: str
) -> bytes:
    writer.write(request(method, path, token))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.split()[1] == b"200", head
    return await reader.readexactly(length(head))


def request(method: str, path: str, token: str, body: str = "") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", body]
    return "\r\n".join(lines).encode()


def length(head: bytes) -> int:
    for line in head.decode().lower().split("\r\n"):
        if line.startswith("content-length:"):
            return int(line.partition(":")[2])
    return 0


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def size(process: psutil.Process) -> str:
    return f"{process.memory_info().rss / 2**20:.0f} MiB"


if __name__ == "__main__":
    main()
