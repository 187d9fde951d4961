"""The dashboard as one ASGI application in one process: API, live channel, assets, and the Streamlit pages."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import ExitStack, asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard import errors
from dashboard.agents.mcp import endpoint
from dashboard.api import (
    alerts,
    audit,
    code,
    docs,
    nodes,
    people,
    prometheus,
    secrets,
    statuses,
    system,
    tokens,
    watching,
)
from dashboard.api.context import CHECKPOINT_THREADS, Threads
from dashboard.api.runs import (
    checkpoint_tasks,
    checkpoints,
    compare,
    lists,
    live,
    logs,
    metrics,
    overview,
    perfetto,
    phases,
    profiles,
    retention,
    runs,
    studies,
    tensorboard,
    transfer,
    waiting,
)
from dashboard.api.shared_reads import SharedAnswers
from dashboard.api.workers import attempts as worker_attempts
from dashboard.api.workers import checkpoints as worker_checkpoints
from dashboard.api.workers import wheels as worker_wheels
from dashboard.app.assets import Assets
from dashboard.app.front import EntryPage, Front, pages
from dashboard.app.slow_connections import ImpatientProtocol
from dashboard.app.ticks import ticking
from dashboard.cluster.joining import own_url
from dashboard.exports.shared_pages import SharedPages
from dashboard.private_files import AlreadyRunning, lock_data_directory, spare_path, write_private
from dashboard.security.guard import headers, policy
from dashboard.security.guard.auth import Guard, ProxyUser
from dashboard.security.guard.visits import Visits
from dashboard.security.keys.certificates import CertificateUnusable, ServerCertificate, publish
from dashboard.security.keys.token_files import TokenUnusable, read_or_create
from dashboard.security.proxies import ForwardedHeaders, Origins, TrustedProxies
from dashboard.security.signing_in.device_page import DevicePage
from dashboard.security.signing_in.login import Entrance, LoginPage
from dashboard.security.signing_in.provider_settings import CALLBACK, ProviderSettings, no_provider, provider_settings
from dashboard.security.signing_in.sign_ins import SignIns
from dashboard.security.signing_in.welcome import Welcome
from dashboard.service import service
from dashboard.service.bulk_actions import BulkActions
from dashboard.service.service import Service
from dashboard.settings import Settings
from dashboard.storage.checkpoint_storages import StorageUnusable
from dashboard.tensorboard.process import TensorBoards
from db.engine import StoreUnusable
from db.nodes import join_tokens
from domain.masking.log_lines import log_to_stderr
from domain.text.paths import problem_in_words


def create_app(settings: Settings, opened: Service | None = None, with_pages: bool = True) -> FastAPI:
    """The whole application; `app.state.service` is shared with the pages."""
    shared = opened or Service.open(settings)
    ui = pages(settings.host, settings.port) if with_pages else None
    app = FastAPI(
        title="Rankzero",
        version=version("rankzero"),
        lifespan=_lifespan(shared, ui),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        strict_content_type=False,  # the guard checks it where the browser's cookie is the credential
    )
    app.state.service, app.state.threads = shared, Threads()
    app.state.checkpoint_threads = Threads(CHECKPOINT_THREADS)
    app.state.pictures, app.state.metrics = nodes.Pictures(shared), prometheus.registry(shared)
    app.state.overviews, app.state.bulk_actions = overview.Overviews(shared), BulkActions(shared)
    app.state.shared_pages, app.state.shared_threads = SharedPages(shared), Threads(1)
    app.state.tensorboards = TensorBoards(
        shared.store, shared.files, settings.data / "tensorboard", now=shared.clock.time.now
    )
    errors.install(app)
    statuses.install(app)
    # Every node's heartbeat and what its runs write, every few seconds: a third cheaper than through the router.
    app.add_route("/api/worker/load", worker_attempts.load, methods=["POST"], include_in_schema=False)
    app.add_route("/api/worker/pieces", worker_attempts.take_pieces, methods=["POST"], include_in_schema=False)
    for module in ROUTERS:
        app.router.routes.extend(module.router.routes)  # each is whole; include_router would build it again
    app.router.routes.append(Route(endpoint.PATH, endpoint.Endpoint(shared), methods=["POST"], include_in_schema=False))
    assets = Assets()
    app.add_route("/assets/{name:path}", assets.serve, methods=["GET", "HEAD"], include_in_schema=False)
    visits = Visits(shared.identities)
    _protect(app, shared, visits)
    app.state.visits = visits
    app.router.routes[:] = policy.guarded(app.router.routes, shared.store)
    if ui is not None:
        Front(EntryPage(assets), ui).install(app)
    return app


log = logging.getLogger("rankzero")
Endpoint = Callable[[Request], Awaitable[Response]]
RENEWAL_S = 2.0
"""Seconds between two looks at the certificate's files."""
LOOKS_A_DAY = int(86400 / RENEWAL_S)
SHUTDOWN_S = 2
MOST_CONNECTIONS = 20_000
"""A worker has two to four connections, a page one or two."""
OTHER_FILES = 500
"""Open files that are not connections: the store, logs, checkpoints being uploaded."""
MAX_WEBSOCKET_BYTES = 8 * 1024 * 1024
ROUTERS = (
    worker_attempts,  # first: routes are tried in order, and workers send most requests
    worker_checkpoints,
    worker_wheels,
    runs,
    waiting,
    phases,
    overview,
    compare,
    transfer,
    watching,
    code,
    audit,
    secrets,
    metrics,
    logs,
    checkpoints,
    checkpoint_tasks,
    retention,
    nodes,
    profiles,
    system,
    prometheus,
    live,
    studies,
    alerts,
    lists,
    people,
    tensorboard,
    perfetto,
    tokens,
    docs,
)


def serve(
    settings: Settings,
    on_ready: Callable[[str], None] | None = None,
    on_live_runs: Callable[[Set[str]], None] | None = None,
    *,
    new_store: bool = False,
) -> int:
    """Run the dashboard until it is told to end; returns the exit code.

    `on_live_runs`: called once a second with the ids of the runs that are live, on whatever node. `new_store`: start
    with an empty store when the previous one is missing."""
    _log_to_stderr()
    os.umask(0o077)  # files written from here on are readable by their owner only
    try:
        with lock_data_directory(settings.data):
            certificate = ServerCertificate(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
            opened = Service.open(settings, new_store=new_store)
            opened.on_live_runs = on_live_runs or opened.on_live_runs
            app = create_app(settings, opened)
            os.chdir(settings.data)  # a .streamlit folder where we were started must not change the pages
            server = Server(uvicorn_config(app, settings, certificate), app.state.service, on_ready, certificate)
            server.run()
            return 0 if server.started else 1
    except (AlreadyRunning, StoreUnusable, StorageUnusable, TokenUnusable, CertificateUnusable) as error:
        print(f"rankzero: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"rankzero: {settings.data} cannot be used: {problem_in_words(error)}. Make it a folder that this user "
            "can write, or choose another with --data.",
            file=sys.stderr,
        )
        return 1
    except SystemExit:  # uvicorn's way to say that it could not start; its log line says why
        print(
            f"rankzero: cannot listen on {settings.host}:{settings.port}; try another --port.",
            file=sys.stderr,
        )
        return 1


class Server(uvicorn.Server):
    """A uvicorn server that publishes its address in the data directory and ends all waiting requests at shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        shared: Service,
        on_ready: Callable[[str], None] | None = None,
        certificate: ServerCertificate | None = None,
    ) -> None:
        super().__init__(config)
        self._service = shared
        self._on_ready = on_ready
        self._certificate = certificate
        self._following: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that is actually listened on."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully; on a second Ctrl-C at once. Unlike uvicorn, do not raise the signal again."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then publish the address."""
        await super().startup(sockets or self._of_both_families())
        if self.started:
            url = own_url(self.config.host, self.port, self._service.settings.scheme)
            self._service.port = self.port
            if self._certificate is not None:
                publish(self._certificate, self._service.settings.data)
                self._following = asyncio.create_task(self._follow_certificate(self._certificate))
            address = {"url": url, "host": self.config.host, "port": self.port, "pid": os.getpid()}
            self._write_address_file(json.dumps(address) + "\n")
            log.info("dashboard %s serves %s", url, self._service.settings.data)
            if self._on_ready is not None:
                self._on_ready(url)

    def _of_both_families(self) -> list[socket.socket] | None:
        """Return the socket for the host `::`, which answers IPv4 as well; None for another host.

        Raises SystemExit as uvicorn does where the port is taken."""
        if self.config.host != "::":
            return None
        try:
            both = socket.create_server(("::", self.config.port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            log.error("%s", error)
            raise SystemExit(1) from None
        return [both]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Release everybody who waits, then shut down."""
        self.release()
        await super().shutdown(sockets)
        log.info("dashboard ended")

    def release(self) -> None:
        """Answer everybody who waits, and withdraw the published address."""
        self._service.hub.close()
        if self._following is not None:
            self._following.cancel()
        with suppress(OSError, ValueError):
            if json.loads(self._address_file.read_text())["pid"] == os.getpid():
                self._address_file.unlink()

    async def _follow_certificate(self, certificate: ServerCertificate) -> None:
        """Use a renewed certificate for new connections."""
        for looks in itertools.count():
            try:
                if certificate.read_again():
                    publish(certificate, self._service.settings.data)
                    log.info("the certificate was renewed")
                if looks % LOOKS_A_DAY == 0 and (warning := certificate.end_warning):
                    log.warning("%s", warning)
            except (CertificateUnusable, OSError) as error:
                log.warning("the renewed certificate is not used yet: %s", error)
            await self._service.clock.time.sleep(RENEWAL_S)

    def _write_address_file(self, address: str) -> None:
        """Write server.json; without it, clients need RANKZERO_URL to find this dashboard."""
        try:
            write_private(self._address_file, address, spare_path(self._service.settings.data))
        except OSError as error:
            log.warning("%s cannot be written (%s): name this dashboard with RANKZERO_URL", self._address_file, error)

    @property
    def _address_file(self) -> Path:
        return self._service.settings.data / "server.json"


def _lifespan(shared: Service, ui: Any) -> Callable[[FastAPI], Any]:
    # Obtained before serving: Streamlit skips the hooks otherwise.
    enter_ui = ui.lifespan() if ui is not None else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        shared.start()
        service.use(shared, app.state.visits.enter)
        ticks = ExitStack()
        ticks.enter_context(ticking(shared))
        try:
            async with app.state.tensorboards.running():
                if enter_ui is None:
                    yield
                else:
                    async with enter_ui(app):
                        yield
        finally:
            await run_in_threadpool(ticks.close)
            await run_in_threadpool(app.state.bulk_actions.close)
            service.use(None)
            shared.close()

    return lifespan


def _protect(app: FastAPI, shared: Service, visits: Visits) -> None:
    sign_ins = SignIns(shared.credentials, shared.known_addresses, shared.clock)
    origins = Origins(shared.settings.public_url)
    entrance = Entrance(shared.credentials, shared.sessions, origins)
    provider = provider_settings(shared.settings)
    name = provider.name if provider is not None else None
    login = LoginPage(shared.store, entrance, sign_ins, shared.hashing, name)
    _add_sign_in(app, shared, entrance, sign_ins, login, provider)
    app.add_middleware(SharedAnswers)  # added first: innermost, behind the guard
    app.add_middleware(headers.BodyLimits)
    app.add_middleware(Warned, sentence=lambda: shared.trouble)
    app.add_middleware(
        Guard,
        credentials=shared.credentials,
        node_of_token=shared.registry.node_of_token,
        rights_of_node=shared.registry.rights,
        identities=shared.identities,
        sessions=shared.sessions,
        entrance=entrance,
        login=login,
        sign_ins=sign_ins,
        proxy_user=ProxyUser(shared.settings.proxy_user_header, shared.people.admit_by_proxy, shared.clock),
        visits=visits,
        access_tokens=shared.access_tokens,
        judge_join=lambda token: join_tokens.judge(shared.store, token, shared.clock()),
        origins=origins,
        allowed_hosts=shared.settings.allowed_hosts,
        now=shared.clock,
    )
    app.add_middleware(headers.SecurityHeaders)
    app.add_middleware(headers.Departures)
    _add_proxies(app, shared.settings)


def _add_sign_in(
    app: FastAPI,
    shared: Service,
    entrance: Entrance,
    sign_ins: SignIns,
    login: LoginPage,
    provider: ProviderSettings | None,
) -> None:
    app.add_route("/login", login.show, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_route("/login", login.sign_in, methods=["POST"], include_in_schema=False)
    app.add_route("/logout", login.sign_out, methods=["POST"], include_in_schema=False)
    Welcome(shared.people, entrance, sign_ins, provider.name if provider is not None else None).install(app)
    leave: Endpoint = no_provider
    come_back: Endpoint = no_provider
    if provider is not None:
        from dashboard.security.signing_in.provider_sign_in import ProviderSignIn  # Authlib takes 0.4 s and 20 MiB

        at_provider = ProviderSignIn(provider, shared.people, entrance, shared.credentials, sign_ins, shared.clock.time)
        leave, come_back = at_provider.leave, at_provider.come_back
    app.add_route("/login/provider", leave, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_route(CALLBACK, come_back, methods=["GET", "HEAD"], include_in_schema=False)
    device = DevicePage(shared.device_logins, shared.people)
    app.add_api_route("/device", device.show, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/device", device.decide, methods=["POST"], include_in_schema=False)


def _add_proxies(app: FastAPI, settings: Settings) -> None:
    secret = read_or_create(settings.proxy_secret_file) if settings.proxy_secret_file else ""
    proxies = TrustedProxies(settings.trusted_proxies, secret)
    app.add_middleware(
        ForwardedHeaders, proxies=proxies, user_header=settings.proxy_user_header
    )  # added last: outermost


def uvicorn_config(app: FastAPI, settings: Settings, certificate: ServerCertificate | None = None) -> uvicorn.Config:
    """The configuration of uvicorn for the application."""
    context = certificate and certificate.context
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=ImpatientProtocol,
        workers=1,
        log_config=None,
        log_level="warning",
        access_log=False,  # it would print queries, and the address of the first visit carries the token
        server_header=False,
        proxy_headers=False,
        ssl_context_factory=(lambda _config, _default: context) if context else None,
        ws="websockets-sansio",
        ws_max_size=MAX_WEBSOCKET_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        limit_concurrency=most_connections(),
        timeout_keep_alive=65,
        timeout_graceful_shutdown=SHUTDOWN_S,
        h11_max_incomplete_event_size=64 * 1024,
    )


def most_connections() -> int:
    """The number of connections that the limit on open files allows; a lower limit is raised first if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files = MOST_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < open_files:
        open_files = open_files if hard == resource.RLIM_INFINITY else min(open_files, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(100, min(MOST_CONNECTIONS, soft - OTHER_FILES))


def _log_to_stderr() -> None:
    log_to_stderr(logging.WARNING, "%(asctime)s %(levelname)s %(message)s")
    log.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


# A header on every response of the API that says why nothing can be stored at the moment.

WARNING = "X-Rankzero-Warning"


class Warned:
    """Adds the current warning, if there is one, to every response below /api."""

    def __init__(self, app: ASGIApp, sentence: Callable[[], str | None]) -> None:
        self.app, self._sentence = app, sentence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wrap `send` so that the response's first message carries the header."""
        sentence = self._sentence() if scope["type"] == "http" and scope["path"].startswith("/api/") else None
        if sentence is None:
            await self.app(scope, receive, send)
            return

        async def send_with_warning(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault(WARNING, sentence)
            await send(message)

        await self.app(scope, receive, send_with_warning)
