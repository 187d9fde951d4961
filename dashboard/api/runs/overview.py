"""The table of runs, asked for every few seconds by every Runs page that is open."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from dashboard.api.reading import JsonRoute
from dashboard.api.tagged import Tagged, answer_tagged, tagged
from dashboard.service.overview import Filter, overview
from dashboard.service.service import Service
from domain.messages import State

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
KEPT_S = 1.0
MOST_KEPT = 32
SHARE = 0.05
"""Of one core, for one filter's table: one that takes long to read is kept longer."""


class Overviews:
    """The last table of each filter, shared by all who look: each is read once a second at most."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._kept: OrderedDict[Filter, tuple[float, Tagged]] = OrderedDict()

    def latest(self, wanted: Filter) -> Tagged:
        """The table as JSON."""
        with self._lock:
            good_until, content = self._kept.get(wanted, (float("-inf"), None))
            if content is None or time.monotonic() >= good_until:
                began_s = time.thread_time()
                service = self._service
                content = tagged(overview(service.store, service.now_for_contact(), wanted))
                spent_s = time.thread_time() - began_s
                self._kept[wanted] = time.monotonic() + max(KEPT_S, spent_s / SHARE), content
                self._kept.move_to_end(wanted)
                if len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
            return content


@router.get("/overview")
def overview_of_runs(
    request: Request,
    state: Annotated[list[State] | None, Query(description="Only runs in these states.")] = None,
    q: Annotated[str, Query(max_length=500, description="Text to look for.")] = "",
    project: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The table of the Runs page: live runs first, then those that failed lately, queued ones and the rest."""
    overviews: Overviews = request.app.state.overviews
    wanted = Filter(q, tuple(sorted(set(state or ()))), project)
    return answer_tagged(request, overviews.latest(wanted))
