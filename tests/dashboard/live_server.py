"""A small server that speaks the live channel's protocol, and a page that holds the browser components."""

from __future__ import annotations

import asyncio
import json
import math
import mimetypes
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from dashboard.logs import search

RUN_ID = "abcdefghij"
THEMES = {
    "light": {"background": "#ffffff", "secondary-background": "#f5f6fa", "text": "#1c2033",
              "border": "#dfe2ec", "primary": "#4549d6"},
    "dark": {"background": "#12141c", "secondary-background": "#1b1e29", "text": "#e4e7f2",
             "border": "#2d3142", "primary": "#8b93ff"},
}  # fmt: skip
HOST = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<style>:root{%s} body{margin:24px;background:var(--st-background-color);color:var(--st-text-color)}</style>
<div id="host"></div><script type="module">
const host = document.getElementById('host');
const root = host.attachShadow({mode: 'open'});
const style = document.createElement('style');
style.textContent = %s;
root.append(style);
const data = {run_id: %s, name: 'digits-resnet18'};
window.component = {data, parentElement: root, key: 'k', name: 'n', setTriggerValue() {}};
const modules = %s;
window.cleanups = [];
const mounts = [];
window.mountAgain = (position) => mounts[position]();
for (const name of modules) {
  const place = document.createElement('div');
  place.attachShadow({mode: 'open'}).append(style.cloneNode(true));
  root.append(place);
  const component = {...window.component, parentElement: place.shadowRoot};
  const module = await import('/assets/' + name + '.js');
  window.cleanups.push(module.mount(component));
  mounts.push(() => module.mount(component));
}
document.body.dataset.ready = 'yes';
</script>"""

Message = dict[str, Any]
COMPONENTS = Path(str(files("dashboard.components")))


def module_path(name: str) -> str:
    """Where a component lies below the assets, such as `logs/log_view`."""
    (script,) = COMPONENTS.rglob(f"{name}.js")
    return f"{script.parent.name}/{name}"


def run_view(**changes: Any) -> Message:
    """A run as the live channel sends it."""
    view = {
        "id": RUN_ID, "name": "digits-resnet18", "project": "default", "state": "running", "reason": None,
        "message": None, "world_size": 8, "nodes": 1, "attempt": 1, "lost_contact": False, "silent_s": 0.0,
        "step": 812, "total_steps": 4000, "epoch": 1.62, "last_loss": 0.4123, "throughput": 12431.0,
        "throughput_mean": 12011.5, "progress": 0.203, "eta_s": 1503.0, "created_at": time.time() - 760,
        "started_at": time.time() - 751, "ended_at": None, "stop_requested_at": None, "base_lr": 0.0001,
        "lr": 0.0008, "global_batch_size": 512, "waiting_for": None, "kill_at": None, "spec": {"stop_grace_s": 30.0},
    }  # fmt: skip
    return {"type": "run", "run": {**view, **changes}}


def series(name: str, points: list[list[Any]], reset: bool = True, attempt: int = 1) -> Message:
    """One series' points as the live channel sends them."""
    source = next((s for s in ("printed", "probe") if name.startswith(f"{s}/")), "events")
    change = {"source": source, "attempt": attempt, "points": points, "reset": reset}
    return {"type": "series", "series": {name: change}}


def falling(count: int, start: float = 2.3, first: int = 0) -> list[list[Any]]:
    """A loss curve: step, value, wall time."""
    wall = 1_760_000_000.0
    return [
        [s, 0.1 + start * math.exp(-s / 700) + 0.08 * math.sin(s * 12.9898) ** 3, wall + s / 10]
        for s in range(first, first + count)
    ]


class FakeServer:
    """Speaks /api/live to every page that connects, and remembers what pages said."""

    def __init__(self) -> None:
        self.picture: list[Message] = [run_view()]
        self.said: list[Message] = []
        self.asked: list[str] = []
        self.log_picture: Callable[[Message], list[Message]] = lambda choice: []
        self.log_file = b""
        self.metrics: dict[str, list[list[Any]]] = {}
        self.phases: Message = {"phases": [], "steps": [], "walls": [], "ranks": []}
        self.checkpoint_task: Message = {}
        self.is_down = False
        self._sockets: set[WebSocket] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on a free port, in a thread; yields the address."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(self.app(), log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            self.drop()
            server.should_exit = True
            thread.join()
            listener.close()

    def app(self) -> Starlette:
        """All routes the components use, and a page that holds them."""
        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/assets/{name:path}", self._asset),
                Route("/api/runs/{run}", self._run),
                Route("/api/runs/{run}/metrics", self._metrics),
                Route("/api/runs/{run}/phases/spans", self._phases),
                Route("/api/checkpoint-tasks/{task}", self._checkpoint_task),
                Route("/api/runs/{run}/logs", self._logs),
                Route("/api/runs/{run}/logs/search", self._search),
                WebSocketRoute("/api/live", self._live),
            ]
        )

    @property
    def connections(self) -> int:
        """Pages that are connected now."""
        return len(self._sockets)

    def send(self, *messages: Message) -> None:
        """To all pages that are connected."""
        self._in_loop(self._send_all, list(messages))

    def drop(self) -> None:
        """Break all connections."""
        self._in_loop(self._close_all)

    def wait_said(self, is_wanted: Callable[[Message], bool], limit_s: float = 120) -> Message:
        """The first message of a page that is wanted."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            for message in list(self.said):
                if is_wanted(message):
                    return message
            time.sleep(0.02)
        raise AssertionError(f"no page said it; they said {self.said}")

    def _in_loop(self, make: Callable[..., Any], *arguments: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(make(*arguments), self._loop).result(60)

    async def _send_all(self, messages: list[Message]) -> None:
        for message in messages:
            for websocket in list(self._sockets):
                await websocket.send_text(json.dumps(message))

    async def _close_all(self) -> None:
        for websocket in list(self._sockets):
            await websocket.close(1012)

    async def _live(self, websocket: WebSocket) -> None:
        self._loop = asyncio.get_running_loop()
        if self.is_down:
            await websocket.close(1013)
            return
        await websocket.accept()
        self._sockets.add(websocket)
        is_first = True
        try:
            while True:
                said = json.loads(await websocket.receive_text())
                self.said.append(said)
                messages = self.picture if is_first and said["since"] is None else []
                logs = self.log_picture(said["logs"]) if said.get("logs") else []
                is_first = False
                for message in [*messages, *logs]:
                    await websocket.send_text(json.dumps(message))
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            self._sockets.discard(websocket)

    async def _page(self, request: Request) -> Response:
        colours = THEMES[request.query_params.get("theme", "light")]
        variables = ";".join(f"--st-{name}-color:{value}" for name, value in colours.items())
        modules = [module_path(name) for name in request.query_params.get("show", "charts").split(",")]
        sheets = ["elements/component", *modules]
        style = "".join((COMPONENTS / f"{sheet}.css").read_text(encoding="utf-8") for sheet in sheets)
        style += (files("uplot.static") / "uPlot.min.css").read_text(encoding="utf-8")
        return HTMLResponse(HOST % (variables, json.dumps(style), json.dumps(RUN_ID), json.dumps(modules)))

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        package = "uplot.static" if name.startswith("uPlot") else "dashboard.components"
        text = (files(package) / name).read_text(encoding="utf-8")
        return Response(text, media_type=mimetypes.guess_type(name)[0])

    async def _run(self, request: Request) -> Response:
        return JSONResponse(self.picture[0], 503 if self.is_down else 200)

    async def _metrics(self, request: Request) -> Response:
        self.asked.append(str(request.url.query))
        since = int(request.query_params.get("since", 0))
        names = request.query_params.getlist("name") or list(self.metrics)
        return JSONResponse({n: [p for p in self.metrics.get(n, []) if p[0] >= since] for n in names})

    async def _phases(self, request: Request) -> Response:
        return JSONResponse(self.phases, 503 if self.is_down else 200)

    async def _checkpoint_task(self, request: Request) -> Response:
        return JSONResponse(self.checkpoint_task, 503 if self.is_down else 200)

    async def _search(self, request: Request) -> Response:
        log, asked = self.log_file, request.query_params

        def read(offset: int, limit: int) -> bytes:
            return log[offset : offset + limit]

        if "line" in asked and "q" not in asked and "errors" not in asked:
            hit = search.line_at(read, len(log), int(asked["line"]))
            return JSONResponse({"hits": [asdict(hit)] if hit else [], "is_complete": True})
        finder = (search.find_error, 200) if "errors" in asked else search.find_text(asked["q"])
        most = 1 if "errors" in asked else 1000
        return JSONResponse(asdict(search.search(read, len(log), *finder, most=most)))

    async def _logs(self, request: Request) -> Response:
        self.asked.append(str(request.url.query))
        offset = int(request.query_params.get("offset", 0))
        limit = int(request.query_params.get("limit", 1 << 30))
        headers = {"X-Rankzero-Offset": str(offset)}
        return PlainTextResponse(self.log_file[offset : offset + limit], headers=headers)
