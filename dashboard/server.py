"""The dashboard as one ASGI application: the API and the live channel outside, Streamlit's pages mounted at /."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp

from dashboard import refusals, service, streamlit_app
from dashboard.access import TokenUnusable, write_private
from dashboard.api import checkpoints, errors, live, logs, metrics, nodes, runs, system, worker, worker_files
from dashboard.api.context import Threads
from dashboard.assets import Assets
from dashboard.auth import Guard, local_path
from dashboard.headers import BodyLimits, SecurityHeaders
from dashboard.login import login_page
from dashboard.service import Service
from dashboard.settings import Settings
from db.engine import StoreUnusable

log = logging.getLogger("rankzero")
TICK_S = 1.0
SHUTDOWN_S = 2
MOST_CONNECTIONS = 2000
LARGEST_MESSAGE_BYTES = 1024 * 1024
ROUTERS = (runs, metrics, logs, checkpoints, nodes, system, worker, worker_files, live)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "rankzero": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


def create_app(opened: Service, host: str, port: int) -> ASGIApp:
    """The whole application, guarded; its lifespan starts and ends the pages and the clock's tick."""
    pages = streamlit_app.pages(host, port)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with pages.lifespan()(app):
            opened.hub.start()
            ticking = asyncio.create_task(_tick_for_ever(opened, app.state.threads))
            try:
                yield
            finally:
                ticking.cancel()
                with suppress(asyncio.CancelledError):
                    await ticking

    app = FastAPI(title="Rankzero", docs_url="/api/docs", openapi_url="/api/openapi.json", lifespan=lifespan)
    app.state.service, app.state.threads = opened, Threads()
    refusals.install(app)
    errors.install(app)
    for module in ROUTERS:
        app.include_router(module.router)
    _add_login(app, opened)
    app.add_route("/assets/{name}", Assets().serve, methods=["GET"], include_in_schema=False)
    app.mount("/", pages)
    guarded = Guard(
        BodyLimits(app), opened.credentials, opened.registry.node_of_token, opened.settings.allowed_hosts
    )
    app.state.guard = guarded
    return SecurityHeaders(guarded)


def serve(settings: Settings) -> int:
    """Run the dashboard until SIGTERM or Ctrl-C; returns the exit code."""
    try:
        opened = Service.open(settings)
    except (StoreUnusable, TokenUnusable, OSError) as error:
        print(f"rankzero: {error}", file=sys.stderr)
        return 1
    with _alone_on(settings.data) as is_alone:
        if not is_alone:
            text = f"A dashboard already runs on {settings.data}; use that one, or another --data."
            print(f"rankzero: {text}", file=sys.stderr)
            return 1
        service.use(opened)
        try:
            return _run(opened, settings)
        finally:
            opened.close()


def _run(opened: Service, settings: Settings) -> int:
    config = uvicorn.Config(
        create_app(opened, settings.host, settings.port),
        host=settings.host,
        port=settings.port,
        log_config=LOGGING,
        access_log=False,
        server_header=False,
        workers=1,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ws_max_size=LARGEST_MESSAGE_BYTES,
    )
    server = _Server(config, opened, settings)
    server.run()
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Says where it can be reached once it can be, and lets waiting requests go when it ends."""

    def __init__(self, config: uvicorn.Config, opened: Service, settings: Settings) -> None:
        super().__init__(config)
        self._opened, self._settings = opened, settings
        self._about = settings.data / "server.json"

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            url = f"http://{_reachable(self._settings.host)}:{port}"
            about = {"url": url, "host": self._settings.host, "port": port, "pid": os.getpid()}
            write_private(self._about, json.dumps(about))
            log.info("dashboard listens on %s", url)

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._about.unlink(missing_ok=True)
        self._opened.hub.close()
        await super().shutdown(sockets)  # type: ignore[arg-type]


def _reachable(host: str) -> str:
    """An address this machine can use to reach a server that listens on `host`."""
    known = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    return known.get(host, f"[{host}]" if ":" in host else host)


async def _tick_for_ever(opened: Service, threads: Threads) -> None:
    while True:
        try:
            await threads.run(opened.tick)
        except Exception as error:  # whatever it was, the next tick may go well
            log.warning("the scheduler's turn failed: %s", error)
        await asyncio.sleep(TICK_S)


def _add_login(app: FastAPI, opened: Service) -> None:
    async def show(request: Request) -> Response:
        return HTMLResponse(login_page(local_path(request.query_params.get("next", "/"))))

    async def sign_in(request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True))
        target = local_path(form.get("next", "/"))
        if not opened.credentials.is_user(form.get("token", "").strip().encode(errors="replace")):
            return HTMLResponse(login_page(target, wrong=True), 401)
        guard: Guard = request.app.state.guard
        return guard.signed_in(target, secure=request.url.scheme == "https")

    app.add_route("/login", show, methods=["GET"], include_in_schema=False)
    app.add_route("/login", sign_in, methods=["POST"], include_in_schema=False)


@contextmanager
def _alone_on(data: Path) -> Iterator[bool]:
    """One dashboard per data directory; the lock goes with the process, however it ends."""
    descriptor = os.open(data / "dashboard.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)
