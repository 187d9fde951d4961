"""Read-only links to runs: make, list and revoke them, and what their visitors see."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService, Threads
from dashboard.api.nodes.joining import shown_url
from dashboard.api.reading import JsonRoute
from dashboard.exports.shared_pages import SharedPages
from dashboard.json_responses import answer, document
from db.runs import shared_links
from db.runs.shared_links import DEFAULT_DAYS
from domain.choices import RUN_ID

router = APIRouter(route_class=JsonRoute, tags=["runs"])
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
}


class LinkRequest(BaseModel):
    """The runs that a new link shows, and for how long."""

    model_config = ConfigDict(extra="forbid")

    runs: list[Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]]
    days: int = DEFAULT_DAYS


@router.get("/api/shared-links")
def list_links(service: TheService) -> Response:
    """The links, the newest first, without their secrets; ended ones for 30 days."""
    return answer(shared_links.every(service.store, service.clock()))


@router.post("/api/shared-links", status_code=201)
def make_link(service: TheService, request: Request, wanted: LinkRequest) -> Response:
    """Make a link that shows one run, or several side by side. Its `url` is in this answer and nowhere else."""
    runs = list(dict.fromkeys(wanted.runs))
    link, token = shared_links.make(service.store, runs, wanted.days, service.clock())
    made = document(link) | {"url": f"{shown_url(request)}/shared/{token}"}
    return answer(made, 201, {"Cache-Control": "no-store"})


@router.delete("/api/shared-links/{link_id}")
def revoke_link(service: TheService, link_id: str) -> Response:
    """End a link at once."""
    return answer(shared_links.revoke(service.store, link_id, service.clock()))


@router.get("/shared/{token}", include_in_schema=False)
@router.head("/shared/{token}", include_in_schema=False)
async def shared(request: Request, token: str) -> Response:
    """The report of the link's runs, for anybody who has it. A thread of its own serves all visitors."""
    pages: SharedPages = request.app.state.shared_pages
    threads: Threads = request.app.state.shared_threads
    page = await threads.run(pages.page, token)
    policy = f"{page.policy}; frame-ancestors 'none'; sandbox"
    headers = HEADERS | {"Content-Security-Policy": policy}
    return Response(page.html, page.status, media_type="text/html", headers=headers)
