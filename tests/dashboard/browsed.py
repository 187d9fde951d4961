"""A dashboard with its pages on a free port, in this process, for a browser; its nodes stay as silent as they are."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select, update
from streamlit.runtime import Runtime

from dashboard.app.server import Server, create_app, uvicorn_config
from dashboard.clock import LEASE_S, Lease
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.models import Node
from tests.dashboard import components_once  # noqa: F401  it acts when it is imported
from tests.db.templates import new_data
from tests.end_to_end.product import free_port, wait_for

_last_port = [-1]


@dataclass
class Browsed:
    """What a browser is pointed at, and the service behind it."""

    url: str
    service: Service

    @property
    def entrance(self) -> str:
        """The address that signs in."""
        return f"{self.url}/?token={self.service.credentials.user}"


@contextmanager
def browsed(service: Service) -> Iterator[Browsed]:
    """Serve; the store may be filled before and meanwhile."""
    awake_since = service.clock() - LEASE_S - 1
    service.lease = Lease(awake_since, awake_since)  # for so long that silence counts
    _hear_the_latest(service)
    app = create_app(service.settings, service)
    server = Server(uvicorn_config(app, service.settings), service)
    serving, ended = threading.Thread(target=server.run), threading.Event()
    speaking = threading.Thread(target=_keep_as_silent, args=(service, ended))
    serving.start()
    try:
        wait_for(lambda: server.started or not serving.is_alive(), "the dashboard to start")
        speaking.start()
        yield Browsed(f"http://127.0.0.1:{server.port}", service)
    finally:
        ended.set()
        if speaking.ident is not None:
            speaking.join()
        server.should_exit = True
        serving.join()
        Runtime._instance = None  # Streamlit has one in a process, and never lets go of it


def opened(data: Path) -> Service:
    """A service over that directory, on a free port."""
    return Service.open(Settings(data=new_data(data), port=_usual_port()))


def _usual_port() -> int:
    """A free port: the one before while nobody takes it, since the browser's cache goes by the address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind(("127.0.0.1", _last_port[0]))
        except (OSError, OverflowError):  # taken; none yet
            _last_port[0] = free_port()
    return _last_port[0]


def _hear_the_latest(service: Service) -> None:
    """The node that spoke last speaks now: to fill a store takes a busy machine longer than a node may be silent."""
    with service.store.write() as session:
        spoke_at = session.scalar(select(func.max(Node.last_seen)))
        if spoke_at is not None and (late_s := service.clock() - spoke_at) > 0:
            session.execute(update(Node).values(last_seen=Node.last_seen + late_s))


def _keep_as_silent(service: Service, ended: threading.Event) -> None:
    """Nobody sends heartbeats here, and the clock goes on."""
    before = time.time()
    while not ended.wait(1.0):
        now = time.time()
        with service.store.write() as session:
            session.execute(update(Node).values(last_seen=Node.last_seen + (now - before)))
        before = now
