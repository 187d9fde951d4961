"""Submitting into a long queue and listing it, by many clients at once, against Slurm's sbatch and squeue."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import numpy as np

from benchmarks.figures import Figure, Spread, in_turns, ratios
from benchmarks.served import SPEC, Served, served
from tests.end_to_end.slurm import Slurm, why_not

QUEUE, CLIENTS, READERS = 1000, 16, 200
MOST_MS = 200
MOST_GROWTH_MIB = 100


def measure(quick: bool) -> Iterator[Figure]:
    """95th percentiles of the seconds that each client waits."""
    queue, rounds = (20, 2) if quick else (QUEUE, 3)
    each = max(1, queue // CLIENTS // rounds // 3)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_until_end:
        site = open_until_end.enter_context(served(Path(folder) / "data", 1, queue))
        acts = {
            "submit": lambda: p95(submissions(site, each)),
            "list": lambda: p95(listings(site)),
        }
        if (obstacle := why_not()) is None:
            slurm = slurm_with_queue(Path(folder) / "slurm", queue, open_until_end)
            acts["sbatch"] = lambda: p95(at_once(CLIENTS, each, lambda: sbatch(slurm)))
            acts["squeue"] = lambda: p95(at_once(READERS, 1, lambda: asked(slurm, "squeue", "-h")))
        else:
            print(f"not against Slurm: {obstacle}")
        before = resident_mib(site)
        seconds = in_turns(acts, rounds)
        growth = resident_mib(site) - before
    what = {"submit": f"submission into a queue of {queue:,}, p95", "list": f"list of {READERS} readers, p95"}
    for act, peer in (("submit", "sbatch"), ("list", "squeue")):
        limit = Spread.of(1000 * s / MOST_MS for s in seconds[act])
        yield Figure(what[act], ms(seconds[act]), "a limit", f"{MOST_MS} ms", limit, 1, "less")
        if peer in seconds:
            ratio = ratios(seconds[act], seconds[peer])
            yield Figure(what[act], ms(seconds[act]), peer, ms(seconds[peer]), ratio, 1, "less")
    kept = Spread.of([growth / MOST_GROWTH_MIB])
    yield Figure("memory kept", f"{growth:.0f} MiB", "a limit", f"{MOST_GROWTH_MIB} MiB", kept, 1, "less")


def p95(seconds: Sequence[float]) -> float:
    return float(np.percentile(seconds, 95))


def ms(seconds: list[float]) -> str:
    return f"{1000 * sorted(seconds)[len(seconds) // 2]:.3g} ms"


def resident_mib(site: Served) -> float:
    return float(site.process.memory_info().rss) / (1 << 20)


def at_once(clients: int, each: int, act: Callable[[], object]) -> list[float]:
    """The seconds of every act, of that many by each client; all clients begin together."""
    begin = threading.Barrier(clients)

    def client(_: int) -> list[float]:
        begin.wait(60)
        return [timed(act) for _ in range(each)]

    with ThreadPoolExecutor(clients) as threads:
        return [seconds for one in threads.map(client, range(clients)) for seconds in one]


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def submissions(site: Served, each: int) -> list[float]:
    body = SPEC.model_dump_json()
    limits = httpx2.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    headers = dict(site.user.headers) | {"Content-Type": "application/json"}
    with httpx2.Client(base_url=site.user.base_url, headers=headers, limits=limits, timeout=60) as client:
        return at_once(CLIENTS, each, lambda: client.post("/api/runs", content=body).raise_for_status())


def listings(site: Served) -> list[float]:
    """Bare sockets: a client library would take more of the two cores than the server."""

    async def all_of_them() -> list[float]:
        begin = asyncio.Event()
        readers = [asyncio.create_task(listing(site, begin)) for _ in range(READERS)]
        await asyncio.sleep(0.5)
        begin.set()
        return list(await asyncio.gather(*readers))

    return asyncio.run(all_of_them())


async def listing(site: Served, begin: asyncio.Event) -> float:
    """The seconds from the question to the last byte of the list."""
    url, authorization = site.user.base_url, site.user.headers["authorization"]
    reader, writer = await asyncio.open_connection(url.host, url.port)
    await begin.wait()
    began = time.perf_counter()
    lines = ["GET /api/runs HTTP/1.1", f"Host: {url.host}", f"Authorization: {authorization}"]
    writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
    answer = await reader.read(-1)
    seconds = time.perf_counter() - began
    writer.close()
    assert answer.split(None, 2)[1] == b"200" and answer.rstrip().endswith(b"]"), answer[:200]
    return seconds


def slurm_with_queue(folder: Path, queue: int, open_until_end: ExitStack) -> Slurm:
    """A cluster whose cores are taken, with that many jobs waiting for them."""
    slurm = Slurm(folder)
    open_until_end.callback(slurm.clean_up)
    slurm.start()
    slurm.fill()
    at_once(CLIENTS, -(-queue // CLIENTS), lambda: sbatch(slurm))
    return slurm


def sbatch(slurm: Slurm) -> None:
    asked(slurm, "sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 1000")


def asked(slurm: Slurm, *argv: str) -> None:
    """Ask until there is an answer: where two hundred ask at once, its server drops some connections."""
    env = slurm.env | {"PATH": "/usr/bin:/bin"}
    while subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        time.sleep(0.05)
