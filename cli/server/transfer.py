"""One download: resumable, verified, and in place only as a whole."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from cli.server.client import NotYet, ServerClient, ServerUnreachable
from cli.server.following import StatusLine
from cli.terminal.errors import CommandFailed
from dashboard.storage.checkpoint_form import CheckpointForm
from domain.text import formats

if TYPE_CHECKING:
    import httpx

FRUITLESS_TRIES = 3
RETRY_S = 1.0


class Transfer:
    """Fetches one checkpoint into `target`; what has arrived stays beside it until it is whole."""

    def __init__(self, server: ServerClient, checkpoint: dict[str, Any], target: Path) -> None:
        self._server, self._target = server, target
        self._url = f"/api/checkpoints/{int(checkpoint['id'])}/file"
        self._params: dict[str, Any] = checkpoint.get("params", {})
        self._sha256, self._size_bytes = checkpoint["sha256"], checkpoint["size_bytes"]
        # The hash in its name: a part is only ever continued with bytes of the same file.
        self._part = target.with_name(f".{target.name}.{self._sha256[:12]}.part")
        self._line = StatusLine()

    def run(self) -> None:
        """Fetch, verify, and put in place."""
        try:
            self._fetch_all()
        except OSError as error:
            raise CommandFailed(f"{self._part} cannot be written: {error.strerror}.") from None
        finally:
            self._line.clear()
        found = sha256_of(self._part)
        if found != self._sha256:
            self._part.unlink()
            raise CommandFailed(
                f"What arrived is not the checkpoint: its SHA-256 is {found}, not {self._sha256}. "
                "It was deleted; download it again."
            )
        self._part.replace(self._target)
        _sync_folder(self._target.parent)

    def _fetch_all(self) -> None:
        fruitless = 0
        while (have := self._have()) < self._size_bytes or not self._part.exists():
            params = self._params
            try:
                self._fetch_from(have)
            except ServerUnreachable as error:
                fruitless = 0 if self._have() > have else fruitless + 1
                if fruitless >= FRUITLESS_TRIES:
                    raise ServerUnreachable(f"{error} The {self._have()} bytes so far are kept.") from None
                time.sleep(RETRY_S)
                continue
            if self._have() <= have and self._size_bytes and params == self._params:
                raise CommandFailed("The dashboard sent nothing of the checkpoint; try again.")

    def _have(self) -> int:
        size_bytes = self._part.stat().st_size if self._part.exists() else 0
        if size_bytes > self._size_bytes:
            self._part.unlink()
            return 0
        return size_bytes

    def _fetch_from(self, have: int) -> None:
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers |= {"Range": f"bytes={have}-", "If-Range": f'"{self._sha256}"'}
        with self._server.stream(self._url, headers=headers, **self._params) as answer:
            if answer.status_code != 307:
                self._take(answer, have)
                return
            elsewhere = answer.headers.get("location", "")
        try:
            headers.pop("If-Range", None)  # an object has an ETag of its own, but never other bytes
            with self._server.stream_elsewhere(elsewhere, headers) as answer:
                self._take(answer, have)
        except ServerUnreachable:
            self._params = self._params | {
                "via": "server"
            }  # which may reach the bucket where this machine cannot

    def _take(self, answer: httpx.Response, have: int) -> None:
        start = _first_byte(answer)
        if answer.status_code == 416 or start not in (0, have):
            self._part.unlink(missing_ok=True)
            return
        with self._part.open("r+b" if start else "wb") as file:
            file.seek(start)
            self._copy(answer, file)

    def _copy(self, answer: httpx.Response, file: BinaryIO) -> None:
        try:
            for piece in answer.iter_raw():  # as it comes: what a bigger buffer held would be lost at a break
                if file.tell() + len(piece) > self._size_bytes:
                    raise CommandFailed("The dashboard sent more than the checkpoint's size; try again.")
                file.write(piece)
                self._show(file.tell())
        finally:
            file.flush()
            os.fsync(file.fileno())

    def _show(self, have: int) -> None:
        of = formats.size(self._size_bytes)
        self._line.show(f"{have / (self._size_bytes or 1):4.0%} of {of}")


def in_form(server: ServerClient, checkpoint: dict[str, Any], form: CheckpointForm) -> dict[str, Any]:
    """The checkpoint as it will be fetched: its name, size and SHA-256 in that form, and what is to be known of it."""
    line, url = StatusLine(), f"/api/checkpoints/{int(checkpoint['id'])}/file"
    try:
        while True:
            line.show("being rewritten")
            try:
                params = form.params | {"via": "server"}
                with server.stream(url, {"Accept-Encoding": "identity"}, **params) as answer:
                    found = answer.headers
                    break
            except NotYet:
                time.sleep(RETRY_S)
    finally:
        line.clear()
    sha256 = found["X-Checksum-Sha256"]
    name = checkpoint["name"] if sha256 == checkpoint["sha256"] else form.file_name(checkpoint["name"])
    return checkpoint | {
        "name": name,
        "sha256": sha256,
        "size_bytes": int(found["Content-Length"]),
        "params": params,
        "note": found.get("X-Rankzero-Note", ""),
    }


def sha256_of(path: Path) -> str:
    """The hash of a file, whatever its size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_byte(answer: httpx.Response) -> int:
    if answer.status_code != 206:
        return 0
    match = re.fullmatch(r"bytes (\d+)-\d*/(?:\d+|\*)", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else -1


def _sync_folder(folder: Path) -> None:
    """A rename lasts through a power cut only when its folder is on disk."""
    if sys.platform == "linux":
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
