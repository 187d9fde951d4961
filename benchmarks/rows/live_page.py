"""The page of a live run before 200 viewers, on one core, against Streamlit's own charts in a fragment.

A viewer is what the browser of an open page asks, without the browser: Streamlit's connection with the reruns that the
page's fragments ask for, and our WebSocket with the points of the charts. A run logs meanwhile as a worker sends it.
The peer is a page of Streamlit alone that draws the same points (scripts/streamlit_page.py) before fewer viewers.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import numpy as np
import psutil

from benchmarks.cores import one_core, processor_s
from benchmarks.figures import Figure, Spread, in_turns, milliseconds, ratios
from benchmarks.served import Served, served
from benchmarks.streamlit_server import streamlit
from benchmarks.streamlit_viewer import bare, viewer
from domain.messages import Bundle, PointBatch
from worker.session.client import TaskRef
from worker.session.pieces import bytes_piece, points_piece

PAGE = Path(__file__).parents[1] / "scripts" / "streamlit_page.py"
CHARTS = ("train/loss", "train/accuracy", "train/lr", "val/loss")
HEADER = ("train/samples_per_s", "probe/samples_per_s")
"""Further series that the page's header asks for."""
EARLIER, PER_SECOND = 1000, 5
"""Steps that the run has when the first viewer comes, and those of a second from then on."""
VIEWERS, MOST_MS, LEAST_TIMES = 200, 100, 5
THEIR_VIEWERS = 20
"""Before more the peer's core is full: with 200 its pages did not open within five minutes."""
OPENING = 4
"""Viewers that open their page at the same time."""
PATIENCE_S = 10.0
"""For the last points to arrive; those that do not count as late as that."""
Log = Callable[[int], Awaitable[None]]
"""Stores a step's points."""
Open = Callable[["Seen", AsyncExitStack], Awaitable[None]]
"""Opens the page of one viewer, until the stack ends."""


def measure(quick: bool) -> Iterator[Figure]:
    """From the moment a step's points are sent to the server until a viewer has them: the 95th percentile of all."""
    (viewers, fewer), seconds, rounds = ((5, 2), 2, 1) if quick else ((VIEWERS, THEIR_VIEWERS), 20, 3)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        with one_core():
            site = running.enter_context(served(Path(folder) / "data"))
            page = running.enter_context(streamlit_page(Path(folder) / "points"))
        ours, shares = Ours(site), []

        def seen() -> float:
            p95_s, share = asyncio.run(watched(ours, viewers, seconds))
            shares.append(share)
            return p95_s

        acts = {"ours": seen, "theirs": lambda: asyncio.run(watched(page, fewer, seconds))[0]}
        p95_s = in_turns(acts, rounds)
    mine, other = p95_s["ours"], p95_s["theirs"]
    what = f"points of a live page's 4 charts, {viewers} viewers, p95"
    text, limit = milliseconds(Spread.of(mine).median), Spread.of(1000 * s / MOST_MS for s in mine)
    yield Figure(what, text, "a limit", f"{MOST_MS} ms", limit, 1, "less")
    against = milliseconds(Spread.of(other).median)
    peer = f"Streamlit's charts in a fragment, {fewer} viewers"
    yield Figure(what, text, peer, against, ratios(other, mine), LEAST_TIMES)
    text = f"{100 * Spread.of(shares).median:.0f} % of a core"
    yield Figure(f"server of {viewers} viewers", text, "a limit", "one core", Spread.of(shares), 1, "less")


@dataclass
class Seen:
    """When each step was sent, and how long after that this viewer had it."""

    sent: dict[int, float]
    seconds: dict[int, float] = field(default_factory=dict)
    last: int = EARLIER - 1

    def note(self, step: int) -> None:
        """This step has arrived, and those before it with it at the latest."""
        now = time.perf_counter()
        for each in range(self.last + 1, step + 1):
            if each in self.sent:
                self.seconds[each] = now - self.sent[each]
        self.last = max(self.last, step)

    def all_seconds(self) -> list[float]:
        """Of all steps that were sent; one that never came counts until now."""
        self.note(max(self.sent))
        return [*self.seconds.values()]


async def watched(page: Ours | Theirs, viewers: int, seconds: float) -> tuple[float, float]:
    """Let them all look at the page; returns the 95th percentile in seconds and the server's share of a core."""
    sent: dict[int, float] = {}
    eyes = [Seen(sent) for _ in range(viewers)]
    async with AsyncExitStack() as open_until_end:
        turns = asyncio.Semaphore(OPENING)

        async def look(one: Seen) -> None:
            async with turns:
                await page.open(one, open_until_end)

        await asyncio.gather(*map(look, eyes))
        await asyncio.sleep(2)
        spent_s, began = processor_s(page.process), time.perf_counter()
        for number in range(round(seconds * PER_SECOND)):
            await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.perf_counter()))
            sent[page.next_step] = time.perf_counter()
            await page.log(page.next_step)
        share = (processor_s(page.process) - spent_s) / (time.perf_counter() - began)
        last, patient_until = max(sent), time.perf_counter() + PATIENCE_S
        while any(one.last < last for one in eyes) and time.perf_counter() < patient_until:
            await asyncio.sleep(0.05)
        late = [s for one in eyes for s in one.all_seconds()]
    return float(np.percentile(late, 95)), share


class Ours:
    """Our page of a live run."""

    def __init__(self, site: Served) -> None:
        self.process, self._site, self.next_step, self._bytes = site.process, site, 0, 0
        self._url = str(site.user.base_url).rstrip("/")
        token = site.user.headers["authorization"].removeprefix("Bearer ")
        entered = httpx2.get(f"{self._url}/", params={"token": token})
        cookies = "; ".join(f"{name}={value}" for name, value in entered.cookies.items())
        self._headers = {"Cookie": cookies, "Origin": self._url}
        self._send(EARLIER)

    async def open(self, seen: Seen, open_until_end: AsyncExitStack) -> None:
        """The page itself, then what its header and charts ask of the live channel."""
        run = self._site.runs[0]
        page = await viewer(self._url, f"id={run}", self._headers)
        open_until_end.push_async_callback(page.close)
        await page.open("run")
        socket = await bare(f"{self._url.replace('http', 'ws', 1)}/api/live?run={run}", self._headers)
        open_until_end.push_async_callback(socket.close)
        wanted = sorted({*CHARTS, *HEADER})
        await socket.send(json.dumps({"type": "subscribe", "since": None, "logs": None, "series": wanted}))
        listening = asyncio.create_task(self._listen(socket, seen))
        open_until_end.callback(listening.cancel)

    async def log(self, step: int) -> None:
        """As a worker whose run is watched: the points first, then the event file's bytes."""
        await asyncio.to_thread(self._send, 1)

    @staticmethod
    async def _listen(socket: object, seen: Seen) -> None:
        async for text in socket:
            if text.startswith('{"type":"series"'):
                points = json.loads(text)["series"][CHARTS[0]]["points"]
                seen.note(int(points[-1][0]))

    def _send(self, steps: int) -> None:
        at, numbers = time.time(), range(self.next_step, self.next_step + steps)
        series = {name: [(step, 1 / (step + 1), at) for step in numbers] for name in CHARTS}
        path, start, end = "work/events.out.tfevents.1", self._bytes, self._bytes + 200 * steps
        batch = PointBatch(path=path, generation=0, start=start, end=end, series=series)
        task = TaskRef(self._site.fences[0], 0)
        for piece in points_piece(task, batch), bytes_piece(task, path, 0, start, bytes(end - start)):
            body = Bundle.body([piece.head], [piece.content])
            (answer,) = self._site.worker.post("/api/worker/pieces", content=body).json()["answers"]
            assert answer["status"] == 200, answer
        self._bytes, self.next_step = end, self.next_step + steps


class Theirs:
    """A page of Streamlit alone."""

    def __init__(self, process: psutil.Process, url: str, points: Path) -> None:
        self.process, self._url, self._points, self.next_step = process, url, points, 0

    async def open(self, seen: Seen, open_until_end: AsyncExitStack) -> None:
        page = await viewer(self._url, "", {"Origin": self._url}, lambda text: seen.note(int(text)))
        open_until_end.push_async_callback(page.close)
        await page.open("")

    async def log(self, step: int) -> None:
        self.write(1)

    def write(self, steps: int) -> None:
        """Append steps to the file that the page reads."""
        numbers = np.arange(self.next_step, self.next_step + steps, dtype=float)
        values = 1 / (numbers + 1)
        with self._points.open("ab") as file:
            file.write(np.column_stack([numbers, *[values] * len(CHARTS)]).tobytes())
        self.next_step += steps


@contextmanager
def streamlit_page(points: Path) -> Iterator[Theirs]:
    """Serve the peer's page of the points in that file."""
    with streamlit(PAGE, str(points), *CHARTS) as (process, url):
        page = Theirs(process, url, points)
        page.write(EARLIER)
        yield page
