"""The addresses that people see: Streamlit's pages, what those load, and one page for all that leads nowhere."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.app.entry_page import TITLES, EntryPage
from dashboard.errors import error_body
from dashboard.security.plain_pages import PLAIN_POLICY, not_found_page

STREAMLITS_OWN = ("/_stcore/", "/static/", "/media/", "/component/")
"""Where Streamlit's scripts, its WebSocket and its files are."""
MOVED = {"/runs": "/", "/index.html": "/"}


class Front:
    """Answers what no other route did."""

    def __init__(self, entry: EntryPage, streamlit: ASGIApp) -> None:
        self._entry = entry
        self._streamlit = streamlit

    def install(self, app: FastAPI) -> None:
        """Add the routes; they come after all others."""
        for path in TITLES:
            app.add_route(path, self._show, methods=["GET", "HEAD"], include_in_schema=False)
        for path in MOVED:
            app.add_route(path, _lead_on, methods=["GET", "HEAD"], include_in_schema=False)
        self._api = Router(list(app.router.routes))
        app.mount("/", self._rest)

    async def _show(self, request: Request) -> Response:
        return HTMLResponse(self._entry.html(request.url.path), headers={"Cache-Control": "no-cache"})

    async def _rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope["path"] + "/").startswith("/api/"):  # 404, or 405 where another method is known
            await self._api(scope, receive, send)
        elif scope["type"] != "http" or scope["path"].startswith(STREAMLITS_OWN):
            await self._streamlit(scope, receive, send)
        else:
            await _nothing_here(Request(scope))(scope, receive, send)


async def _lead_on(request: Request) -> Response:
    return _redirect(request, MOVED[request.url.path])


def _nothing_here(request: Request) -> Response:
    path = request.url.path
    if path.rstrip("/") in TITLES.keys() | MOVED.keys():
        return _redirect(request, path.rstrip("/"))
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse(error_body(None, f"There is nothing at {path}."), 404)
    headers = {"Content-Security-Policy": PLAIN_POLICY, "Cache-Control": "no-store"}
    return HTMLResponse(not_found_page(path), 404, headers)


def _redirect(request: Request, path: str) -> Response:
    return RedirectResponse(f"{path}?{request.url.query}" if request.url.query else path, 308)
