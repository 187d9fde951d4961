"""The cluster as the Nodes page draws it; every open page asks for it every few seconds."""

from __future__ import annotations

import threading
import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from dashboard.api.reading import JsonRoute
from dashboard.api.tagged import Tagged, answer_tagged, tagged
from dashboard.cluster.picture import picture
from dashboard.service.service import Service
from db.queries.device_allocations import occupants

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["nodes"])
CACHED_S = 1.0
CPU_SHARE = 0.05
"""Share of one core that drawing may take: the picture of thousands of nodes is cached longer."""


class Pictures:
    """The last picture, shared by all pages: hundreds of nodes are read once a second at most."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._expires_at = float("-inf")
        self._content = Tagged(b"", "")

    def latest(self) -> Tagged:
        """The picture as gzipped JSON, and its tag."""
        with self._lock:
            if time.monotonic() >= self._expires_at:
                began_s = time.thread_time()
                self._content = tagged(picture(self._service.nodes(), occupants(self._service.store)))
                spent_s = time.thread_time() - began_s
                self._expires_at = time.monotonic() + max(CACHED_S, spent_s / CPU_SHARE)
            return self._content


@router.get("/cluster")
def cluster(request: Request) -> Response:
    """Every node with its devices as cells [state, run, rank, utilisation %, bytes used], and a summary."""
    pictures: Pictures = request.app.state.pictures
    return answer_tagged(request, pictures.latest())
