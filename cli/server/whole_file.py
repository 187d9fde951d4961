"""Download a file whose size is not known beforehand: renamed into place once it is whole."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from cli.server.client import ServerClient
from cli.server.following import StatusLine
from cli.terminal.errors import CommandFailed
from dashboard.private_files import sync_folder
from domain.text import formats

PIECE_BYTES = 256 * 1024
READ_TIMEOUT_S = 600.0
"""A checkpoint in a bucket is fetched by the server before its first byte is sent."""


def fetch_whole(server: ServerClient, path: str, target: Path, **params: Any) -> int:
    """GET a file and return its size in bytes; after an error or Ctrl-C nothing of it is left.

    Raises CommandFailed."""
    if target.is_dir() or not target.parent.is_dir():
        rule = "is a folder" if target.is_dir() else "lies in a folder that does not exist"
        raise CommandFailed(f"-o: {target} {rule}; name a file in an existing folder.", 2)
    draft = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        _fetch(server, path, draft, params)
        size_bytes = draft.stat().st_size
        draft.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise CommandFailed(
            f"{target} cannot be written: {error.strerror}. Nothing was left; choose another PATH."
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return size_bytes


def _fetch(server: ServerClient, path: str, draft: Path, params: dict[str, Any]) -> None:
    line = StatusLine()
    headers = {"Accept-Encoding": "identity"}
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            server.stream(path, headers, READ_TIMEOUT_S, **params) as answer,
        ):
            for piece in answer.iter_raw(PIECE_BYTES):
                file.write(piece)
                line.show(formats.size(file.tell()))
            file.flush()
            os.fsync(file.fileno())
    finally:
        line.clear()
