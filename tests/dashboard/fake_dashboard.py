"""A dashboard of a few routes, for the command line to talk to: canned answers, remembered requests."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from domain.choices import RUN_ID

TOKEN = "a-token-of-more-than-twenty-characters"
CONTENT = bytes(range(256)) * 8192
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RUN: dict[str, Any] = {
    "id": "abcdefghij", "name": "first light", "project": "default", "state": "running", "reason": None,
    "message": None, "error": None, "world_size": 2, "nodes": 1, "attempt": 1, "lost_contact": False, "step": 120,
    "total_steps": 1000, "epoch": 0.5, "created_at": 1_800_000_000.0, "started_at": 1_800_000_001.0,
    "ended_at": None, "base_lr": 0.001, "lr": 0.002, "global_batch_size": 16, "throughput": 12400.0,
    "last_loss": "NaN", "eta_s": 61.0, "waiting_for": None, "spec": {"stop_grace_s": 30.0},
}  # fmt: skip
CHECKPOINT: dict[str, Any] = {
    "id": 7, "name": "work/checkpoints/step100.pt", "attempt": 1, "step": 100, "size_bytes": len(CONTENT),
    "received_bytes": len(CONTENT), "sha256": SHA256, "complete": True, "created_at": 1_800_000_060.0,
    "loss": 2.5, "best": True, "latest": True,
}  # fmt: skip


class FakeDashboard:
    """What it answers, and what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.runs = [dict(RUN)]
        self.checkpoints = [dict(CHECKPOINT)]
        self.metrics: dict[str, Any] = {"train/loss": [[1, 2.5, 1.0], [2, "NaN", 2.0]]}
        self.content = CONTENT
        self.backup = Path("copy of the store")
        """Where it writes one."""
        self.log = b"step 1\n\x1b[31mred\xff\n"
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.cut_after: int | None = None
        """Break the next download after so many bytes."""
        self.asked: list[tuple[str, str]] = []
        self.deleted: list[dict[str, Any]] = []
        self.bodies: list[Any] = []
        self.not_passed: list[str] = []
        """What a preview says of values that do not arrive."""
        self.ranges: list[str | None] = []
        self.tasks: list[dict[str, Any]] = []
        """A node's work on a checkpoint, at each time that it is asked for or about."""

    def app(self) -> Starlette:
        """The routes."""
        get, every = ["GET"], ["GET", "POST", "PATCH", "DELETE"]
        return Starlette(
            routes=[
                Route("/api/health", lambda _request: JSONResponse({"status": "ok"})),
                Route("/api/checkpoints/{id}/file", self._download, methods=get),
                Route("/api/named-runs", self._named, methods=get),
                Route("/api/runs/{id}/logs", self._logs, methods=get),
                Route("/api/{path:path}", self._answer, methods=every),
            ]
        )

    async def _answer(self, request: Request) -> Response:
        self.asked.append((request.method, request.url.path + (f"?{request.url.query}" if request.url.query else "")))
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"detail": {"field": None, "message": "A valid token is needed."}}, 401)
        if request.method == "POST":
            self.bodies.append(await request.json())
        if self.refusal is not None:
            return JSONResponse({"detail": self.refusal[1]}, self.refusal[0])
        return JSONResponse(*self._canned(request.method, request.url.path.removeprefix("/api/")))

    async def _named(self, request: Request) -> Response:
        """Any id is one of ours, and the name of the first run; nothing else is."""
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"detail": {"field": None, "message": "A valid token is needed."}}, 401)
        name = request.query_params["name"]
        if RUN_ID.fullmatch(name):
            return JSONResponse({"id": name, "name": name})
        if self.runs and name in ("latest", self.runs[0]["name"]):
            return JSONResponse({"id": self.runs[0]["id"], "name": self.runs[0]["name"]})
        return JSONResponse({"detail": {"field": "run", "message": f"There is no run {name!r}."}}, 404)

    def _canned(self, method: str, path: str) -> tuple[Any, int]:
        run = self.runs[0] if self.runs else {}
        if path == "runs" and method == "POST":
            return {
                "id": run["id"],
                "name": run["name"],
                "state": "queued",
                "url": f"{self.url}/run?id=x",
            }, 201
        if path == "preview":
            command = {"node_rank": 0, "argv": ["torchrun", "a b.py"], "env": {"OMP_NUM_THREADS": "1"}}
            about = {"lr": 0.0008, "global_batch_size": 256, "world_size": 8, "commands": [command]}
            return about | {"warnings": ["The run needs 4 nodes; 1 is known."], "not_passed": self.not_passed}, 200
        if path.endswith("/push") or path.startswith("checkpoint-tasks/"):
            return self.tasks.pop(0), 200
        if path == "nodes":
            device = {"id": "cpu:0", "kind": "cpu", "name": "CPU slot", "run_id": run["id"], "attempt": 1}
            about = {
                "id": "n1",
                "name": "gpu-3",
                "hostname": "gpu-3",
                "state": "alive",
                "address": "10.0.0.3",
                "slots": 2,
                "free": 1,
            }
            return [
                about | {"devices": [device, device | {"id": "cpu:1", "run_id": None}], "last_seen": time.time()}
            ], 200
        if path.endswith("drain") and method == "GET":
            return {"sentence": ""}, 200
        if path.endswith("drain"):
            device = {"id": "cpu:0", "kind": "cpu", "name": "CPU slot", "run_id": run["id"], "attempt": 1}
            return {"name": "gpu-3", "draining": path.endswith("/drain"), "devices": [device]}, 200
        if path == "backup":
            self.backup.write_bytes(bytes(4096))
            return {"path": str(self.backup), "size_bytes": 4096}, 200
        if method == "DELETE":
            return run | {
                "freed_bytes": 4096,
                "kept_until": None if "now=true" in self.asked[-1][1] else 1_800_000_000.0,
            }, 200
        if path == "deleted-runs":
            return self.deleted, 200
        info = {"snapshot_limit_bytes": 10_000_000}
        answers = {"runs": self.runs, "checkpoints": self.checkpoints, "metrics": self.metrics, "info": info}
        return answers.get(path.rpartition("/")[2], run), 200

    async def _logs(self, request: Request) -> Response:
        self.asked.append((request.method, f"{request.url.path}?{request.url.query}"))
        start = int(request.query_params.get("offset", 0))
        piece, broken = self.log[start:], self.cut_after
        self.cut_after = None

        async def body() -> Any:
            yield piece[:broken]
            if broken is not None:
                raise ConnectionResetError("cut")

        return StreamingResponse(body(), headers={"X-Rankzero-Offset": str(start)})

    async def _download(self, request: Request) -> Response:
        wanted = request.headers.get("range")
        self.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        piece, broken = self.content[start:], self.cut_after
        self.cut_after = None

        async def body() -> Any:
            yield piece[:broken]
            if broken is not None:
                raise ConnectionResetError("cut")

        headers = {"Content-Length": str(len(piece)), "ETag": f'"{SHA256}"'}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(self.content) - 1}/{len(self.content)}"
        return StreamingResponse(body(), 206 if wanted else 200, headers)


@contextmanager
def serving(fake: FakeDashboard) -> Iterator[FakeDashboard]:
    """The fake on a free port, in a thread."""
    server = uvicorn.Server(uvicorn.Config(fake.app(), port=0, log_level="critical", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        fake.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield fake
    finally:
        server.should_exit = True
        thread.join()
