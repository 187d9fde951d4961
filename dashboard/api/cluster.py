"""The cluster as the Nodes page draws it: asked every few seconds by every page that is open."""

from __future__ import annotations

import gzip
import hashlib
import threading
import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from dashboard.api.reading import JsonRoute
from dashboard.cluster import picture
from dashboard.documents import document, json_text
from dashboard.service import Service
from db.occupants import occupants

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
        self._text, self._tag = b"", ""

    def latest(self) -> tuple[bytes, str]:
        """The picture as gzipped JSON, and its tag."""
        with self._lock:
            if time.monotonic() >= self._good_until:
                began_s = time.thread_time()
                drawn = picture(self._service.nodes(), occupants(self._service.store))
                text = json_text(document(drawn)).encode()
                self._text, self._tag = gzip.compress(text, 1, mtime=0), hashlib.sha256(text).hexdigest()[:16]
                spent_s = time.thread_time() - began_s
                self._good_until = time.monotonic() + max(KEPT_S, spent_s / SHARE)
            return self._text, self._tag


@router.get("/cluster")
def cluster(request: Request) -> Response:
    """Every node with its devices as cells [state, run, rank, utilisation %, bytes used], and a summary."""
    pictures: Pictures = request.app.state.pictures
    text, tag = pictures.latest()
    headers = {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(text, media_type="application/json", headers=headers | {"Content-Encoding": "gzip"})
    return Response(gzip.decompress(text), media_type="application/json", headers=headers)
