"""Perfetto for a run's traces: its page behind the login, its files behind the pass that the page carries."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from dashboard.api.context import TheService
from dashboard.errors import Rejection
from dashboard.perfetto import page as perfetto_page
from dashboard.perfetto.page import NoPerfetto
from dashboard.security.sandbox import CORS, METHODS, Passes

router = APIRouter(include_in_schema=False)


@router.get("/perfetto/{run_id}/")
@router.head("/perfetto/{run_id}/")
def page(service: TheService, run_id: str) -> Response:
    """The page that shows one rank's trace; `profile` and `rank` stand in its query. Raises NoSuchRun."""
    run = service.run(run_id)
    return perfetto_page.host(run.id, Passes(service.credentials, "perfetto").issue(run.id, service.clock()))


@router.api_route("/perfetto/{run_id}/{issued}/{path:path}", methods=[*METHODS])
def serve_file(request: Request, path: str) -> Response:
    """One of Perfetto's own files. Raises Rejection when there is none."""
    if request.state.principal.via != "pass":
        raise Rejection(404, "There is nothing at this address. Perfetto's page is one folder above.")
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=CORS)
    try:
        if path in ("", "index.html"):
            return perfetto_page.sandboxed(request.headers["host"])
        headers = perfetto_page.part_headers(request.headers["host"])
        return FileResponse(perfetto_page.file(path), headers=headers)
    except NoPerfetto as error:
        raise Rejection(404, str(error)) from None
