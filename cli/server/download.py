"""Download files, renamed into place only when complete; checkpoints are resumed and verified."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli.server.client import ServerClient, ServerUnreachable
from cli.server.following import StatusLine
from cli.terminal import CommandFailed
from dashboard.private_files import sync_folder
from domain.clients.downloads import CheckpointDownload, DownloadFailed
from domain.clock import SYSTEM_CLOCK
from domain.text import formats


class Transfer:
    """The download of one checkpoint, shown on one line."""

    def __init__(self, server: ServerClient, checkpoint: dict[str, Any], target: Path) -> None:
        self._line, self._target = StatusLine(), target
        self._download = CheckpointDownload(
            server, checkpoint, target, ServerUnreachable, SYSTEM_CLOCK, progress=self._show
        )

    def run(self) -> None:
        """Fetch, verify and rename into place. Raises CommandFailed where one of them fails."""
        try:
            with plain_downloads():
                self._download.run()
            sync_folder(self._target.parent)
        finally:
            self._line.clear()

    def _show(self, received_bytes: int, size_bytes: int) -> None:
        self._line.show(f"{received_bytes / (size_bytes or 1):4.0%} of {formats.size(size_bytes)}")


@contextmanager
def plain_downloads() -> Iterator[None]:
    """Turn what fails into an error that ends the command. Raises CommandFailed."""
    try:
        yield
    except DownloadFailed as error:
        raise CommandFailed(str(error)) from None


# Download a file whose size is not known beforehand: renamed into place once it is whole.

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
