"""Scripts and styles of ours and of installed packages, at addresses that change with their content."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterator
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from dashboard.errors import Rejection

FROM_PACKAGES = {"uPlot.iife.js": "uplot.static", "uPlot.min.css": "uplot.static"}
OUR_SUFFIXES = (".js", ".json", ".css", ".svg", ".png", ".woff2")
CACHED_FOR_S = 365 * 24 * 3600


class Assets:
    """Every file below /assets, read once at start; they are few and small."""

    def __init__(self) -> None:
        self._content = dict(_read_all())
        self._hash = {name: hashlib.sha256(body).hexdigest()[:16] for name, body in self._content.items()}

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
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(self._content[name], media_type=media_type, headers=headers)


def _read_all() -> Iterator[tuple[str, bytes]]:
    for name, package in FROM_PACKAGES.items():
        yield name, (files(package) / name).read_bytes()
    for folder in files("dashboard.components").iterdir():
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.name.endswith(OUR_SUFFIXES):
                yield f"{folder.name}/{entry.name}", entry.read_bytes()
