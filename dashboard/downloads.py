"""Downloads: streamed with flat memory, resumable, named safely."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Self

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from dashboard.refusals import Rejection
from db.models import Checkpoint

LONGEST_NAME = 200


class CheckpointResponse(FileResponse):
    """A checkpoint with its SHA-256 as ETag, so that a broken download goes on only with the same bytes."""

    chunk_size = 512 * 1024

    @classmethod
    def of(cls, request: Request, path: Path, checkpoint: Checkpoint) -> Self | Response:
        """The answer to GET or HEAD."""
        if not checkpoint.complete:
            raise Rejection(409, f"Checkpoint {checkpoint.id} has not arrived completely yet.")
        return cls.of_file(request, path, checkpoint.sha256, checkpoint.path)

    @classmethod
    def of_file(
        cls, request: Request, path: Path, sha256: str, name: str, more: Mapping[str, str] | None = None
    ) -> Self | Response:
        """The same for its bytes in any form; `more` are further headers."""
        etag = f'"{sha256}"'
        headers = {"ETag": etag, "X-Checksum-Sha256": sha256, "Cache-Control": "private, no-cache"}
        headers |= more or {}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        try:
            status = path.stat()
        except FileNotFoundError:
            raise Rejection(410, "The checkpoint's file is gone from the server.") from None
        return cls(
            path,
            headers=headers,
            media_type="application/octet-stream",
            filename=download_name(name),
            stat_result=status,
        )


class SnapshotResponse(FileResponse):
    """A snapshot of code; its address is its SHA-256, so it never changes."""

    @classmethod
    def of(cls, request: Request, path: Path, sha256: str) -> Self | Response:
        """The answer to GET or HEAD."""
        etag = f'"{sha256}"'
        headers = {"ETag": etag, "X-Checksum-Sha256": sha256, "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        try:
            status = path.stat()
        except FileNotFoundError:
            raise Rejection(410, f"The snapshot {sha256[:12]} is gone from the server.") from None
        return cls(
            path,
            headers=headers,
            media_type="application/x-tar",
            filename=f"{sha256[:12]}.tar",
            stat_result=status,
        )


def download_name(path: str) -> str:
    """The last part of a checkpoint's name, fit to be a file name anywhere."""
    name = PurePosixPath(path.replace("\\", "/")).name
    kept = "".join(c if c.isprintable() and c not in '<>:"|?*' else "_" for c in name).strip(" .")
    kept = kept.encode(errors="replace").decode()
    return kept[-LONGEST_NAME:] or "checkpoint"
