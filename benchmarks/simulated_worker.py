"""What a worker sends: its question for work that waits, its load, and what a live run on its node writes.

Bare sockets, as a client library would take more of the machine than the server."""

from __future__ import annotations

import asyncio
import json
import random
import time
from itertools import count
from typing import Any

from benchmarks.waiting import connected, length
from domain.messages import Bundle, NodeLoad, PieceHead, PointBatch
from domain.points import body_of

HEARTBEAT_S, POLL_WAIT_S, UPLOAD_EVERY_S = 3.0, 20.0, 5.0
"""The defaults of the settings and of a worker whose run nobody looks at (worker/attempt/uploader.py)."""
PER_SECOND, SCALARS = 5, ("train/loss", "train/accuracy", "train/lr", "train/grad_norm")
"""Steps of a second, and what the script logs at each: 20 points a second."""
PROBE = (
    *(f"rank0/{name}" for name in ("step_time_s", "data_wait_s", "peak_memory_bytes")), "steps_per_s", "samples_per_s",
    *(f"rank0/phases/{name}" for name in ("data", "forward", "backward", "optimizer", "other", "steps")),
)  # fmt: skip
HARDWARE = (
    "cpu_percent", "memory_used_bytes", "disk_read_bytes_per_s", "disk_written_bytes_per_s",
    "network_received_bytes_per_s", "network_sent_bytes_per_s", "gpu0/utilisation_percent", "gpu0/power_w",
)  # fmt: skip
RECORD_BYTES, LINE = 60, b"step 1200 loss 0.1234 accuracy 0.95 12.3 it/s\n"
LOAD = NodeLoad(cpu_percent=50.0, memory_used_bytes=1 << 40, memory_total_bytes=2 << 40).model_dump_json()


class Connection:
    """Requests of one thread of a worker, one after another."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._lines = port, ["Host: 127.0.0.1", f"Authorization: Bearer {token}"]
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def remember(self, *lines: str) -> None:
        """Send these headers with every request."""
        self._lines += lines

    async def ask(self, method: str, path: str, body: str | bytes = b"") -> dict[str, Any]:
        """The answer's JSON; {} for an empty one. Raises AssertionError for a refusal."""
        self._streams = self._streams or await connected(self._port)
        reader, writer = self._streams
        content = body.encode() if isinstance(body, str) else body
        lines = [f"{method} {path} HTTP/1.1", *self._lines, f"Content-Length: {len(content)}"]
        kind = "json" if isinstance(body, str) else "octet-stream"
        writer.write("\r\n".join([*lines, f"Content-Type: application/{kind}", "", ""]).encode() + content)
        head = await reader.readuntil(b"\r\n\r\n")
        answer = await reader.readexactly(length(head))
        assert head.split(None, 2)[1].startswith(b"2"), (path, head, answer)
        return dict(json.loads(answer)) if answer else {}

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()


class SimulatedWorker:
    """One node; `uploads` counts the rounds in which it has sent what its run wrote, `slow_s` how long each took."""

    def __init__(self, port: int, token: str, luck: random.Random) -> None:
        self._luck = luck
        self._polling, self._beating, self._sending = (Connection(port, token) for _ in range(3))
        self._tasks: list[asyncio.Task[None]] = []
        self._version, self._offsets = "", dict[str, int]()
        self._fence, self._label = 0, ""
        self.uploads, self.slow_s = 0, list[float]()

    async def start(self) -> None:
        """Take up the run that the server wants here, if any, and go on with all of it until `close`."""
        desired = await self._polling.ask("GET", "/api/worker/desired?wait=0")
        self._version = desired["version"]
        loops = [self._poll(), self._beat()]
        for assignment in desired["assignments"]:
            fence, label = assignment["fence"], f"{assignment['run_id']}/{assignment['attempt']}"
            self._fence, self._label = fence, label
            self._sending.remember(f"Rankzero-Attempt: {label}")
            for each in (self._polling, self._beating, self._sending):
                each.remember(f"Rankzero-Store: {desired['store']} {fence} {label}")
            task = f"/api/worker/attempts/{fence}/tasks/0"
            for state in ("starting", "running"):
                await self._sending.ask("POST", f"{task}/report", json.dumps({"state": state, "pid": 1}))
            loops.append(self._upload())
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    def close(self) -> None:
        """End without a word, and raise what a loop has met."""
        for task in self._tasks:
            task.cancel()
            if task.done() and not task.cancelled():
                task.result()
        for each in (self._polling, self._beating, self._sending):
            each.close()

    async def _poll(self) -> None:
        while True:
            path = f"/api/worker/desired?wait={POLL_WAIT_S:g}&version={self._version}"
            self._version = (await self._polling.ask("GET", path))["version"]

    async def _beat(self) -> None:
        await asyncio.sleep(HEARTBEAT_S * self._luck.random())
        while True:
            await self._beating.ask("POST", "/api/worker/load", LOAD)
            await asyncio.sleep(HEARTBEAT_S)

    async def _upload(self) -> None:
        began = time.monotonic() + UPLOAD_EVERY_S * self._luck.random()
        for number in count():
            await asyncio.sleep(max(0.0, began + number * UPLOAD_EVERY_S - time.monotonic()))
            at = time.monotonic()
            await self._upload_round(int(number * UPLOAD_EVERY_S * PER_SECOND))
            self.uploads += 1
            self.slow_s.append(time.monotonic() - at)

    async def _upload_round(self, first: int) -> None:
        """All streams in one request, as worker/attempt/uploader.py sends them."""
        steps = range(first, first + int(UPLOAD_EVERY_S * PER_SECOND))
        events, log = "work/events.out.tfevents.1", "logs/rank0.out"
        size = RECORD_BYTES * len(steps) * len(SCALARS)
        pieces = [
            self._points(events, "events", SCALARS, steps, size),
            self._bytes(events, bytes(size)),
            self._bytes(log, LINE * int(UPLOAD_EVERY_S)),
            self._points("probe/rank0.jsonl", "probe", PROBE, steps[-1:], 400),
            self._points("hardware.jsonl", "hardware", HARDWARE, steps[-1:], 400),
        ]
        body = Bundle.body(*zip(*pieces, strict=True))
        answers = (await self._sending.ask("POST", "/api/worker/pieces", body))["answers"]
        assert [answer["status"] for answer in answers] == [200] * len(pieces), answers

    def _points(
        self, path: str, source: str, tags: tuple[str, ...], steps: range, size: int
    ) -> tuple[PieceHead, bytes]:
        start, now = self._grow(f"points of {path}", size), time.time()
        series = {tag: [(step, 1 / (step + 1), now) for step in steps] for tag in tags}
        place = {"path": path, "generation": 0, "start": start, "end": start + size, "source": source}
        content = body_of(PointBatch.model_construct(**place, series=series))
        return PieceHead(fence=self._fence, node_rank=0, size_bytes=len(content), label=self._label), content

    def _bytes(self, path: str, content: bytes) -> tuple[PieceHead, bytes]:
        place = {"path": path, "offset": self._grow(path, len(content)), "size_bytes": len(content)}
        return PieceHead(fence=self._fence, node_rank=0, label=self._label, **place), content

    def _grow(self, name: str, size: int) -> int:
        """Where what comes now begins."""
        start = self._offsets.get(name, 0)
        self._offsets[name] = start + size
        return start
