"""The cluster as the Nodes page draws it: asked every few seconds by every page that is open."""

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
KEPT_S = 1.0
SHARE = 0.05
"""Of one core, for drawing: the picture of thousands of nodes is kept longer."""


class Pictures:
    """The last picture, shared by all who look: hundreds of nodes are read once a second at most."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._good_until = float("-inf")
        self._content = Tagged(b"", "")

    def latest(self) -> Tagged:
        """The picture as gzipped JSON, and its tag."""
        with self._lock:
            if time.monotonic() >= self._good_until:
                began_s = time.thread_time()
                self._content = tagged(picture(self._service.nodes(), occupants(self._service.store)))
                spent_s = time.thread_time() - began_s
                self._good_until = time.monotonic() + max(KEPT_S, spent_s / SHARE)
            return self._content


@router.get("/cluster")
def cluster(request: Request) -> Response:
    """Every node with its devices as cells [state, run, rank, utilisation %, bytes used], and a summary."""
    pictures: Pictures = request.app.state.pictures
    return answer_tagged(request, pictures.latest())
