"""The cluster as the Nodes page draws it; every open page asks for it every few seconds."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from dashboard.api.reading import JsonRoute
from dashboard.api.tagged import Tagged, answer_tagged, tagged
from dashboard.cluster.picture import picture
from dashboard.service.cost_cache import CostCache
from dashboard.service.service import Service
from db.nodes.device_allocations import occupants

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["nodes"])
CACHED_S = 1.0


class Pictures:
    """The last picture, shared by all pages: hundreds of nodes are read once a second at most."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cache = CostCache[None, Tagged](CACHED_S)

    def latest(self) -> Tagged:
        """The picture as gzipped JSON, and its tag."""
        return self._cache.get(None, self._draw)

    def _draw(self) -> Tagged:
        return tagged(picture(self._service.nodes(), occupants(self._service.store)))


@router.get("/cluster")
def cluster(request: Request) -> Response:
    """Every node with its devices as cells [state, run, rank, utilisation %, bytes used], and a summary."""
    pictures: Pictures = request.app.state.pictures
    return answer_tagged(request, pictures.latest())
