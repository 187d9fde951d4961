"""Download files, renamed into place only when complete; checkpoints are resumed and verified."""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from cli.server.client import ServerClient, ServerUnreachable
from cli.server.following import StatusLine
from cli.terminal import CommandFailed
from dashboard.private_files import sync_folder
from domain.text import formats

if TYPE_CHECKING:
    import httpx2
import secrets

FRUITLESS_TRIES = 3
RETRY_S = 1.0


class Transfer:
    """The download of one checkpoint; received bytes are kept in a part file beside `target`."""

    def __init__(self, server: ServerClient, checkpoint: dict[str, Any], target: Path) -> None:
        self._server, self._target = server, target
        self._url = f"/api/checkpoints/{int(checkpoint['id'])}/file"
        self._params: dict[str, Any] = {}
        self._sha256, self._size_bytes = checkpoint["sha256"], checkpoint["size_bytes"]
        # The hash in its name: a part is only ever continued with bytes of the same file.
        self._part = target.with_name(f".{target.name}.{self._sha256[:12]}.part")
        self._line = StatusLine()

    def run(self) -> None:
        """Fetch, verify and rename into place; bytes that are wrong are fetched again, once.

        Raises CommandFailed where one of them fails."""
        try:
            if not (self._fetch_verified() or self._fetch_verified()):
                raise CommandFailed(
                    f"The download is corrupt, twice: its SHA-256 is not {self._sha256}. It was deleted. "
                    "Download it again, or check the network and the disks on the way."
                )
            self._part.replace(self._target)
            sync_folder(self._target.parent)
        except OSError as error:
            raise CommandFailed(f"{self._part} cannot be written: {error.strerror}.") from None
        finally:
            self._line.clear()

    def _fetch_verified(self) -> bool:
        """Fetch what is missing; False, and nothing is left, where the SHA-256 is wrong."""
        self._fetch_all()
        is_right = bool(sha256_of(self._part) == self._sha256)
        if not is_right:
            self._part.unlink()  # a single wrong byte may be anywhere in it
        return is_right

    def _fetch_all(self) -> None:
        failures = 0
        while (offset := self._received_bytes()) < self._size_bytes or not self._part.exists():
            params = self._params
            try:
                self._fetch_from(offset)
            except ServerUnreachable as error:
                failures = 0 if self._received_bytes() > offset else failures + 1
                if failures >= FRUITLESS_TRIES:
                    raise ServerUnreachable(
                        f"{error} The {self._received_bytes()} bytes received so far are kept."
                    ) from None
                time.sleep(RETRY_S)
                continue
            if self._received_bytes() <= offset and self._size_bytes and params == self._params:
                raise CommandFailed("The dashboard sent nothing of the checkpoint; try again.")

    def _received_bytes(self) -> int:
        size_bytes = self._part.stat().st_size if self._part.exists() else 0
        if size_bytes > self._size_bytes:
            self._part.unlink()
            return 0
        return size_bytes

    def _fetch_from(self, offset: int) -> None:
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers |= {"Range": f"bytes={offset}-", "If-Range": f'"{self._sha256}"'}
        with self._server.stream(self._url, headers=headers, **self._params) as answer:
            if answer.status_code != 307:
                self._write_answer(answer, offset)
                return
            bucket_url = answer.headers.get("location", "")
        try:
            headers.pop("If-Range", None)  # an object has an ETag of its own, but never other bytes
            with self._server.stream_from_bucket(bucket_url, headers) as answer:
                self._write_answer(answer, offset)
        except ServerUnreachable:
            self._params = self._params | {"via": "server"}  # which may reach the bucket where this machine cannot

    def _write_answer(self, answer: httpx2.Response, offset: int) -> None:
        start = _first_byte(answer)
        if answer.status_code == 416 or start not in (0, offset):
            self._part.unlink(missing_ok=True)
            return
        with self._part.open("r+b" if start else "wb") as file:
            file.seek(start)
            self._copy(answer, file)

    def _copy(self, answer: httpx2.Response, file: BinaryIO) -> None:
        try:
            for chunk in answer.iter_raw():  # as it comes: what a bigger buffer held would be lost at a break
                if file.tell() + len(chunk) > self._size_bytes:
                    raise CommandFailed("The dashboard sent more than the checkpoint's size; try again.")
                file.write(chunk)
                self._show(file.tell())
        finally:
            file.flush()
            os.fsync(file.fileno())

    def _show(self, received_bytes: int) -> None:
        total = formats.size(self._size_bytes)
        self._line.show(f"{received_bytes / (self._size_bytes or 1):4.0%} of {total}")


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 with flat memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_byte(answer: httpx2.Response) -> int:
    if answer.status_code != 206:
        return 0
    match = re.fullmatch(r"bytes (\d+)-\d*/(?:\d+|\*)", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else -1


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
