"""Scripts and styles of ours and of installed packages, at addresses that change with their content, and packed."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

import streamlit
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from dashboard.api.shared_reads import takes_gzip
from dashboard.errors import Rejection

FROM_PACKAGES = {"uPlot.iife.js": "uplot.static", "uPlot.min.css": "uplot.static"}
OUR_SUFFIXES = (".js", ".json", ".css", ".svg", ".png", ".woff2")
CACHED_FOR_S = 365 * 24 * 3600
PACKED_LEVEL = 6


class Assets:
    """Every file below /assets, read once at start; they are few and small."""

    def __init__(self) -> None:
        bodies = dict(_read_all())
        self._content = {name: PackedFile(body) for name, body in bodies.items()}
        self._hash = {name: hashlib.sha256(body).hexdigest()[:16] for name, body in bodies.items()}

    def url(self, name: str) -> str:
        """The address of a file; it changes with the file, so browsers may cache it forever."""
        return f"/assets/{name}?v={self._hash[name]}"

    async def serve(self, request: Request) -> Response:
        """Serve GET or HEAD /assets/{name}; our files have one folder per component. Raises Rejection."""
        name = request.path_params["name"]
        if name not in self._content:
            raise Rejection(404, f"There is no asset {name!r}.")
        version = self._hash[name]
        is_pinned = request.query_params.get("v") == version
        lifetime = f"private, max-age={CACHED_FOR_S}, immutable" if is_pinned else "private, no-cache"
        headers = {"ETag": f'"{version}"', "Cache-Control": lifetime}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return self._content[name].answer(request, name, headers)


class PackedFile:
    """A file and the same gzipped, which is done once for all who ask: a quarter of the bytes for the first visit."""

    def __init__(self, body: bytes) -> None:
        self._body, self._packed = body, _packed(body)

    def answer(self, request: Request, name: str, headers: Mapping[str, str]) -> Response:
        """A response with what the client takes; the name's suffix says the type."""
        if takes_gzip(request):
            return _packed_answer(self._packed, name, headers)
        return Response(self._body, media_type=_media_type(name), headers={**headers, "Vary": "Accept-Encoding"})


class StreamlitsScripts:
    """Streamlit's scripts and styles, which it sends unpacked: three megabytes for the first page."""

    def __init__(self) -> None:
        shipped = Path(streamlit.__file__).parent / "static"
        assets = (path for path in (shipped / "static").rglob("*") if path.suffix in (".js", ".css"))
        self._paths = {f"/{path.relative_to(shipped).as_posix()}": path for path in assets}

    def know(self, scope: Scope) -> bool:
        """Whether the request is for one of them, packed."""
        is_read = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] in self._paths
        return is_read and takes_gzip(Request(scope))

    async def serve(self, request: Request) -> Response:
        """Serve one that is known; its name changes with its content."""
        path = self._paths[request.url.path]
        headers = {"Cache-Control": f"public, max-age={CACHED_FOR_S}, immutable"}
        return _packed_answer(await run_in_threadpool(_packed_file, path), path.name, headers)


@cache
def _packed_file(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), PACKED_LEVEL, mtime=0)


@cache
def _packed(body: bytes) -> bytes:
    """Pack a body once in a process, for every application that serves it."""
    return gzip.compress(body, PACKED_LEVEL, mtime=0)


def _packed_answer(packed: bytes, name: str, headers: Mapping[str, str]) -> Response:
    packing = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(packed, media_type=_media_type(name), headers={**headers, **packing})


def _media_type(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _read_all() -> Iterator[tuple[str, bytes]]:
    for name, package in FROM_PACKAGES.items():
        yield name, (files(package) / name).read_bytes()
    for folder in files("dashboard.components").iterdir():
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.name.endswith(OUR_SUFFIXES):
                yield f"{folder.name}/{entry.name}", entry.read_bytes()
