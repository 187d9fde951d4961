"""What a large cluster costs the server: placing the queue, the nodes' signs of life, and how placing grows.

`place()` runs on clusters and queues drawn at random, `place_queue` on the real store with the same, and the `load`
reports of all nodes at the default interval go through the real ASGI app.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import insert

from benchmarks.figures import Cost, Figure, Spread
from dashboard.app.server import create_app
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.models import Attempt, Node, Run, Series, Task
from db.scheduling.queue_placement import place_queue
from db.token_hashes import hash_token
from domain.messages import NodeLoad, State
from domain.scheduling.models import Allocation, NodeState, ResourceRequest
from domain.scheduling.placement import place
from domain.spec import RunSpec

GPUS = 8
NOW = 1_000_000.0
MOST_MS, MOST_SHARE = 100, 0.25
RACKS = ("a", "b", "c", "d")


def measure(quick: bool) -> Iterator[Figure | Cost]:
    """Processor time of this process, so that a busy machine does not blur it."""
    nodes, runs, passes, reports = (100, 20, 2, 100) if quick else (1000, 200, 10, 3000)
    luck, growth = random.Random(7), Cost(f"placing {runs} runs", "nodes")
    for size in (nodes // 100, nodes // 10, nodes, nodes * 10):
        growth.seconds[size] = statistics.median(pure(luck, size, runs, 0.97) for _ in range(min(3, passes)))
    with tempfile.TemporaryDirectory() as folder:
        service = Service.open(Settings(data=Path(folder) / "data"))
        fill(service, luck, nodes, runs)
        passes_s = [timed(partial(place_queue, service.store, NOW + n)) for n in range(passes)]
        share = heartbeats(service, nodes, reports) * nodes / service.settings.heartbeat_s
        service.close()
    what = f"placing {runs} runs on {nodes:,} nearly full nodes"
    limit, text = (
        Spread.of(1000 * each / MOST_MS for each in passes_s),
        f"{1000 * Spread.of(passes_s).median:.1f} ms",
    )
    yield Figure(what, text, "a limit", f"{MOST_MS} ms", limit, 1, "less")
    what = f"load reports of {nodes:,} nodes"
    yield Figure(
        what,
        f"{share:.1%} of a core",
        "a limit",
        f"{MOST_SHARE:.0%}",
        Spread.of([share / MOST_SHARE]),
        1,
        "less",
    )
    yield growth


def pure(luck: random.Random, nodes: int, runs: int, busy: float) -> float:
    hosts = [drawn_host(luck, number, busy) for number in range(nodes)]
    queue = [drawn_want(luck, number) for number in range(runs)]
    gc.collect()  # drawing them is not what is measured
    return timed(lambda: place(queue, hosts, NOW))


def drawn_host(luck: random.Random, number: int, busy: float) -> NodeState:
    ids = [f"{number}/{device}" for device in range(GPUS)]
    allocations, first = [], 0
    while first < GPUS and luck.random() < busy:
        count = min(luck.choice((1, 2, 4, 8)), GPUS - first)
        end = NOW + luck.uniform(0, 90_000) if luck.random() < 0.7 else None
        allocations.append(Allocation(f"old{number}.{first}", tuple(ids[first : first + count]), end))
        first += count
    return NodeState(
        node_id=str(number),
        name=f"gpu-{number}",
        free=tuple(ids[first:]),
        allocations=tuple(allocations),
        labels={"rack": luck.choice(RACKS)},
        draining=luck.random() < 0.01,
    )


def drawn_want(luck: random.Random, number: int) -> ResourceRequest:
    return ResourceRequest(
        fence=number,
        run_id=f"run{number}",
        nodes=luck.choice((1, 1, 1, 2, 4, 16, 64)),
        devices_per_node=luck.choice((1, 2, 4, 8, 8)),
        priority=luck.choice((0, 0, 0, 5)),
        created_at=NOW - luck.uniform(0, 10_000),
        labels={"rack": luck.choice(RACKS)} if luck.random() < 0.3 else {},
        duration_s=luck.uniform(60, 90_000) if luck.random() < 0.5 else None,
    )


def fill(service: Service, luck: random.Random, nodes: int, runs: int) -> None:
    """A cluster whose devices are nearly all in use, by runs that log, and a queue before it."""
    hosts = [drawn_host(luck, number, 0.97) for number in range(nodes)]
    with service.store.write() as session:
        session.execute(insert(Node), [node_row(host) for host in hosts])
        fence = 0
        for host in hosts:
            for hold in host.allocations:
                fence += 1
                add_run(session, fence, State.RUNNING, RunSpec(target="language_model"))
                session.add(Task(fence=fence, node_rank=0, node_id=host.node_id, device_kind="cuda",
                                 devices=list(hold.devices), state=State.RUNNING))  # fmt: skip
                if hold.ends_at is not None:
                    session.add_all(series_rows(fence, hold.ends_at - NOW))
        for number in range(runs):
            want = drawn_want(luck, number)
            spec = RunSpec(target="language_model", nodes=want.nodes, gpus_per_node=want.devices_per_node,
                           priority=want.priority, labels=dict(want.labels))  # fmt: skip
            add_run(session, fence + 1 + number, State.QUEUED, spec)


def node_row(host: NodeState) -> dict[str, object]:
    ids = [*(d for hold in host.allocations for d in hold.devices), *host.free]
    devices = [{"id": d, "kind": "cuda", "name": "NVIDIA H200", "memory_bytes": 141 << 30} for d in ids]
    return {
        "id": host.node_id, "name": host.name, "instance_id": "i", "token_hash": hash_token(token(host.node_id)),
        "hostname": host.name, "address": "10.0.0.1", "devices": devices, "labels": dict(host.labels),
        "info": {}, "load": None, "first_seen": NOW, "last_seen": NOW + 1e6, "foreign_devices": None,
        "drain_requested_at": None,
    }  # fmt: skip


def token(node_id: str) -> str:
    return f"token-of-{node_id}"


def add_run(session: object, fence: int, state: State, spec: RunSpec) -> None:
    run_id = f"r{fence:09}"
    session.add(Run(id=run_id, name=run_id, project="default", spec=spec.model_dump(mode="json"), created_at=NOW))
    session.flush()
    session.add(Attempt(fence=fence, run_id=run_id, number=1, created_at=NOW, state=state))
    session.flush()


def series_rows(fence: int, left_s: float) -> list[Series]:
    """A loss logged for 1,000 steps of 0.1 s, more losses than that, and so many steps to go that it ends then."""
    tags = {"train/total_steps": 1000 + left_s / 0.1, "train/loss": 1.0}
    tags |= {f"train/metric{number}": 1.0 for number in range(8)}
    return [
        Series(fence=fence, node_rank=0, source="events", tag=tag, count=1000, first_step=0, last_step=1000,
               first_wall=NOW - 100, last_wall=NOW, last_value=value, finite_sum=0.0, finite_count=0)
        for tag, value in tags.items()
    ]  # fmt: skip


def heartbeats(service: Service, nodes: int, reports: int) -> float:
    """Processor seconds of one report, with what is written because of it."""
    app = create_app(service.settings, service, with_pages=False)
    sample = NodeLoad(cpu_percent=50.0, memory_used_bytes=1 << 40, memory_total_bytes=2 << 40, disk_free_bytes=1 << 40,
                      disk_total_bytes=2 << 40, gpus=[gpu(number) for number in range(GPUS)])  # fmt: skip
    body = sample.model_dump_json().encode()

    async def send_all() -> float:
        for number in range(nodes):
            await post(app, str(number), body)  # the first time a token is looked up
        began = time.process_time()
        for number in range(reports):
            await post(app, str(number % nodes), body)
            if number % nodes == nodes - 1:  # as the tick does it
                await asyncio.to_thread(service.registry.write_down)
        await asyncio.to_thread(service.registry.write_down)
        return (time.process_time() - began) / reports

    return asyncio.run(send_all())


def gpu(number: int) -> dict[str, object]:
    return {"id": f"GPU-{number:036}", "utilisation_percent": 97, "memory_used_bytes": 71 << 30,
            "temperature_c": 61, "power_w": 540.5, "foreign": False}  # fmt: skip


async def post(app: Callable[..., object], node_id: str, body: bytes) -> None:
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/api/worker/load", "raw_path": b"/api/worker/load", "query_string": b"", "root_path": "",
        "server": ("127.0.0.1", 8765), "client": ("10.0.0.1", 40000),
        "headers": [(b"host", b"127.0.0.1:8765"), (b"authorization", f"Bearer {token(node_id)}".encode()),
                    (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
    }  # fmt: skip
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    answers: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message: dict[str, object]) -> None:
        answers.append(message)

    await app(scope, receive, send)
    assert answers[0]["status"] == 200, answers


def timed(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began
