"""Streamlit's pages and files, and the page for unknown addresses."""

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
"""Prefixes of Streamlit's scripts, WebSocket and files."""
MOVED = {"/runs": "/", "/index.html": "/"}


class Front:
    """Routes for every address that no other route serves."""

    def __init__(self, entry: EntryPage, streamlit: ASGIApp) -> None:
        self._entry = entry
        self._streamlit = streamlit

    def install(self, app: FastAPI) -> None:
        """Add the routes; call it after all others have been added."""
        for path in TITLES:
            app.add_route(path, self._show, methods=["GET", "HEAD"], include_in_schema=False)
        for path in MOVED:
            app.add_route(path, _redirect_moved, methods=["GET", "HEAD"], include_in_schema=False)
        self._api = Router(list(app.router.routes))
        app.mount("/", self._serve_others)

    async def _show(self, request: Request) -> Response:
        return HTMLResponse(self._entry.html(request.url.path), headers={"Cache-Control": "no-store"})

    async def _serve_others(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope["path"] + "/").startswith("/api/"):  # 404, or 405 when the path has another method
            await self._api(scope, receive, send)
        elif scope["type"] != "http" or scope["path"].startswith(STREAMLITS_OWN):
            await self._streamlit(scope, receive, send)
        else:
            await _not_found(Request(scope))(scope, receive, send)


async def _redirect_moved(request: Request) -> Response:
    return _redirect(request, MOVED[request.url.path])


def _not_found(request: Request) -> Response:
    path = request.url.path
    if path.rstrip("/") in TITLES.keys() | MOVED.keys():
        return _redirect(request, path.rstrip("/"))
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse(error_body(None, f"There is nothing at {path}."), 404)
    headers = {"Content-Security-Policy": PLAIN_POLICY, "Cache-Control": "no-store"}
    return HTMLResponse(not_found_page(path), 404, headers)


def _redirect(request: Request, path: str) -> Response:
    return RedirectResponse(f"{path}?{request.url.query}" if request.url.query else path, 308)
