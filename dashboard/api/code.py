"""Code of runs: stored snapshots, uploads, and what a script says about itself without being executed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.audit import write_down_download
from dashboard.api.context import TheService, TheThreads, Threads
from dashboard.api.reading import JsonRoute
from dashboard.api.request_body import PIECE_BYTES, write_body
from dashboard.errors import Rejection, describe
from dashboard.json_responses import answer
from dashboard.script_reader import targets
from dashboard.script_reader.source import UnreadableScript
from dashboard.service.service import Service
from dashboard.snapshots.archive import MOST_FILES
from dashboard.snapshots.origin import Origin
from dashboard.storage.downloads import DigestResponse
from db.people.ownership import ObjectKind
from db.runs.snapshots import SnapshotView
from domain.spec import RunSpec
from domain.text.formats import size

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["code"])
OVERHEAD_BYTES = 2 * MOST_FILES * 2048
"""How much larger an archive may be than the files in it."""


@router.get("/snapshots/{sha256}")
def show(service: TheService, sha256: str) -> Response:
    """A stored snapshot: its size, its number of files, its origin. Raises Rejection when there is none."""
    return answer(_require(service.snapshots.find(sha256), sha256))


@router.head("/snapshots/{sha256}")
def is_here(service: TheService, sha256: str) -> Response:
    """Whether a snapshot is stored that you may launch; it then stays for an hour, so that a launch can use it."""
    return answer(_require(service.snapshots.hold(sha256), sha256))


@router.put("/snapshots/{sha256}")
async def receive(request: Request, service: TheService, threads: TheThreads, sha256: str) -> Response:
    """Store a snapshot: an uncompressed tar, named by its own SHA-256.

    Raises Rejection when the bytes do not match the name, and CodeRefused when they are not acceptable code."""
    with service.snapshots.arriving() as folder:
        limit_bytes = service.snapshots.limit_bytes + OVERHEAD_BYTES
        received_sha256 = await _receive(request, threads, service, folder / "archive", limit_bytes)
        if received_sha256 != sha256:
            message = "The SHA-256 of what arrived is not the one in the address; send it again."
            raise Rejection(422, message, "snapshot")
        snapshot = await threads.run(service.snapshots.accept, folder / "archive", sha256)
    return answer(snapshot)


@router.put("/snapshots/{sha256}/origin")
def set_origin(service: TheService, sha256: str, origin: Origin) -> Response:
    """Record where a snapshot came from."""
    return answer(_require(service.snapshots.set_origin(sha256, origin), sha256))


@router.get("/snapshots/{sha256}/archive")
@router.head("/snapshots/{sha256}/archive", include_in_schema=False)
def download(request: Request, service: TheService, sha256: str) -> Response:
    """The archive itself."""
    _require(service.snapshots.find(sha256), sha256)
    path, name = service.snapshots.path(sha256), f"{sha256[:12]}.tar"
    write_down_download(request, service, f"code {sha256[:12]}", ObjectKind.SNAPSHOT, sha256)
    return DigestResponse.of_file(request, path, sha256, name, media_type="application/x-tar")


@router.post("/uploads", status_code=201)
async def upload(
    request: Request,
    service: TheService,
    threads: TheThreads,
    name: Annotated[str, Query(min_length=1, max_length=255, description="Name of the file.")],
) -> Response:
    """Store a script, or a zip or tar.gz of a project, as a snapshot; lists the scripts that could be started.

    Raises CodeRefused."""
    with service.snapshots.arriving() as folder:
        limit_bytes = service.snapshots.limit_bytes + PIECE_BYTES
        await _receive(request, threads, service, folder / "upload", limit_bytes)
        snapshot, scripts = await threads.run(service.snapshots.take_upload, folder / "upload", name, folder)
    summary = {"snapshot": snapshot.sha256, "size_bytes": snapshot.size_bytes, "files": snapshot.files}
    return answer(summary | {"scripts": scripts}, 201)


def _require(snapshot: SnapshotView | None, sha256: str) -> SnapshotView:
    if snapshot is None:
        raise Rejection(404, f"There is no snapshot {sha256[:64]!r}.")
    return snapshot


async def _receive(request: Request, threads: Threads, service: Service, path: Path, limit_bytes: int) -> str:
    """Write the body to a file and return its SHA-256. Raises Rejection beyond the limit for code."""
    too_large = Rejection(413, f"Code must be smaller than {size(limit_bytes)} here.", "snapshot")
    return await write_body(request, threads, service.files, path, limit_bytes, too_large)


# A script's own options, the values proposed for them and its launcher, read without executing it.


@router.get("/script")
def script(
    target: Annotated[str, Query(max_length=4096, description="Script or folder on the dashboard's machine.")],
    entry: Annotated[str | None, Query(max_length=4096, description="The file to start in a folder.")] = None,
    module: Annotated[str | None, Query(max_length=4096, description="The module to start in a folder.")] = None,
) -> Response:
    """Read a script without executing it. Raises Rejection when it cannot be read."""
    try:
        reading = targets.read(RunSpec(target=target, entry=entry, module=module))
    except ValidationError as error:
        field, sentence = describe(error.errors())
        raise Rejection(422, sentence, field) from error
    except UnreadableScript as unreadable:
        raise Rejection(422, str(unreadable), "target") from unreadable
    content = {name: getattr(reading, name) for name in ("name", "parsers", "unread", "options", "proposals")}
    return answer(content | {"launcher": reading.guess})
