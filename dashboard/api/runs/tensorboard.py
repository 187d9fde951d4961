"""A run's TensorBoard: its page behind the login, its files and data behind the pass that the page carries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import quote

import httpx2
from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from dashboard.api.context import TheService
from dashboard.errors import Rejection
from dashboard.security.guard.sandbox import CORS, METHODS, PREFIX, Passes, reader
from dashboard.tensorboard import page as tensorboard_page
from dashboard.tensorboard.page import PART_HEADERS
from dashboard.tensorboard.process import NothingToShow, StillStarting, TensorBoardFailed, TensorBoards
from db.exceptions import NoSuchRun

router = APIRouter(include_in_schema=False)
PAGE_WAIT_S = 3.0
"""Seconds after which the page says that TensorBoard is starting."""
PART_WAIT_S = 30.0
REQUEST_HEADERS = ("accept", "accept-encoding", "content-type", "if-modified-since", "if-none-match", "range")
"""Request headers that TensorBoard gets: none that identify the user."""
RESPONSE_HEADERS = (
    "cache-control", "content-disposition", "content-encoding", "content-length", "content-range",
    "content-type", "etag", "expires", "last-modified", "vary",
)  # fmt: skip


async def boards_of(connection: HTTPConnection) -> TensorBoards:
    """The TensorBoards of the application that handles the request."""
    boards: TensorBoards = connection.app.state.tensorboards
    return boards


TheBoards = Annotated[TensorBoards, Depends(boards_of)]


@router.get("/tensorboard/{run_id}")
async def without_slash(run_id: str) -> Response:
    """Redirect to the folder's address: TensorBoard's own addresses are relative to it."""
    return RedirectResponse(f"{PREFIX}{quote(run_id, safe='')}/")


@router.get("/tensorboard/{run_id}/")
@router.head("/tensorboard/{run_id}/")
async def page(request: Request, service: TheService, boards: TheBoards, run_id: str) -> Response:
    """TensorBoard's page, or a page that says why it is missing."""
    try:
        run = await run_in_threadpool(service.run, run_id)
    except NoSuchRun:
        return tensorboard_page.no_such_run()
    try:
        http = await boards.reach(run, PAGE_WAIT_S)
        response = await http.get("/", headers={"Accept-Encoding": "identity"})
        response.raise_for_status()
    except NothingToShow:
        return tensorboard_page.nothing(run.id, run.name, has_ended=run.state.is_terminal)
    except StillStarting:
        return tensorboard_page.starting(run.id, run.name)
    except TensorBoardFailed as error:
        return tensorboard_page.not_started(run.id, str(error))
    except httpx2.HTTPError as error:
        return tensorboard_page.not_started(run.id, str(error) or type(error).__name__)
    issued = Passes(service.credentials).issue(run.id, reader(request.state.principal.access_token), service.clock())
    return tensorboard_page.sandboxed(response.text, f"{PREFIX}{run.id}/{issued}/")


@router.api_route("/tensorboard/{run_id}/{issued}/{path:path}", methods=[*METHODS])
async def serve_file(request: Request, service: TheService, boards: TheBoards, run_id: str, path: str) -> Response:
    """Forward a request of the page to the run's own TensorBoard. Raises Rejection when it cannot answer."""
    if request.state.principal.via != "pass":
        raise Rejection(404, "There is nothing at this address. TensorBoard's page is one folder above.")
    if request.method == "OPTIONS":
        requested_headers = request.headers.get("access-control-request-headers", "")
        return Response(status_code=204, headers=CORS | {"Access-Control-Allow-Headers": requested_headers})
    run = await run_in_threadpool(service.run, run_id)
    try:
        http = await boards.reach(run, PART_WAIT_S)
        return await _forward(request, http, "/" + quote(path))
    except (NothingToShow, StillStarting):
        raise Rejection(503, "TensorBoard is not ready yet; the page tries again.") from None
    except TensorBoardFailed as error:
        raise Rejection(503, f"TensorBoard did not start: {error}") from None
    except ClientDisconnect:
        # Nobody reads this: TensorBoard's page cancels requests as people click.
        return Response(status_code=400)
    except httpx2.HTTPError as error:
        raise Rejection(502, f"TensorBoard did not answer ({type(error).__name__}).") from None


async def _forward(request: Request, http: httpx2.AsyncClient, path: str) -> Response:
    forwarded = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
    url = httpx2.URL(path=path, query=request.url.query.encode())
    upstream_request = http.build_request(
        request.method,
        url,
        headers={"accept-encoding": "identity", **forwarded},
        content=await request.body(),
    )
    response = await http.send(upstream_request, stream=True)
    headers = {name: response.headers[name] for name in RESPONSE_HEADERS if name in response.headers}
    return StreamingResponse(_pieces(response), response.status_code, headers | PART_HEADERS)


async def _pieces(response: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in response.aiter_raw():
            yield piece
    finally:
        await response.aclose()
