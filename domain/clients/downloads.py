"""Download checkpoints: continued where they stopped, verified, and renamed into place when complete."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from domain.clock import Clock

FRUITLESS_TRIES = 3
RETRY_S = 1.0
LONGEST_NAME_BYTES = 200


class DownloadFailed(Exception):
    """A checkpoint cannot be downloaded; the message says why and what to do."""


class DownloadAnswer(Protocol):
    """A response whose body is still to be read."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, whose names are found in any case."""

    def iter_raw(self) -> Iterator[bytes]:
        """The body as it comes."""


class Streams(Protocol):
    """A connection to the dashboard that streams."""

    def stream(
        self, path: str, headers: Mapping[str, str] | None = None, **params: Any
    ) -> AbstractContextManager[DownloadAnswer]:
        """Open a response of the dashboard; status 416 is returned."""

    def stream_from_bucket(self, url: str, headers: Mapping[str, str]) -> AbstractContextManager[DownloadAnswer]:
        """Open a response of the bucket to which the dashboard redirects."""


class CheckpointDownload:
    """The download of one checkpoint; received bytes are kept in a part file beside `target`."""

    def __init__(
        self,
        server: Streams,
        checkpoint: Mapping[str, Any],
        target: Path,
        away: type[Exception],
        clock: Clock,
        progress: Callable[[int, int], None] = lambda received_bytes, size_bytes: None,
    ) -> None:
        """`away`: what `server` raises where another try may help."""
        self._server, self._target, self._away, self._clock = server, target, away, clock
        self._url = f"/api/checkpoints/{int(checkpoint['id'])}/file"
        self._params: dict[str, Any] = {}
        self._sha256, self._size_bytes = checkpoint["sha256"], checkpoint["size_bytes"]
        # The hash in its name: a part is only ever continued with bytes of the same file.
        self._part = target.with_name(f".{target.name}.{self._sha256[:12]}.part")
        self._progress = progress

    def run(self) -> None:
        """Fetch, verify and rename into place; bytes that are wrong are fetched again, once.

        Raises DownloadFailed, and what the server raises."""
        try:
            if not (self._fetch_verified() or self._fetch_verified()):
                raise DownloadFailed(
                    f"The download is corrupt, twice: its SHA-256 is not {self._sha256}. It was deleted. "
                    "Download it again, or check the network and the disks on the way."
                )
            self._part.replace(self._target)
        except OSError as error:
            raise DownloadFailed(f"{self._part} cannot be written: {error.strerror}.") from None

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
            except self._away as error:
                failures = 0 if self._received_bytes() > offset else failures + 1
                if failures >= FRUITLESS_TRIES:
                    raise DownloadFailed(
                        f"{error} The {self._received_bytes()} bytes received so far are kept."
                    ) from None
                self._clock.pause(RETRY_S)
                continue
            if self._received_bytes() <= offset and self._size_bytes and params == self._params:
                raise DownloadFailed("The dashboard sent nothing of the checkpoint; try again.")

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
        except self._away:
            self._params = self._params | {"via": "server"}  # which may reach the bucket where this machine cannot

    def _write_answer(self, answer: DownloadAnswer, offset: int) -> None:
        start = _first_byte(answer)
        if answer.status_code == 416 or start not in (0, offset):
            self._part.unlink(missing_ok=True)
            return
        with self._part.open("r+b" if start else "wb") as file:
            file.seek(start)
            self._copy(answer, file)

    def _copy(self, answer: DownloadAnswer, file: BinaryIO) -> None:
        try:
            for chunk in answer.iter_raw():  # as it comes: what a bigger buffer held would be lost at a break
                if file.tell() + len(chunk) > self._size_bytes:
                    raise DownloadFailed("The dashboard sent more than the checkpoint's size; try again.")
                file.write(chunk)
                self._progress(file.tell(), self._size_bytes)
        finally:
            file.flush()
            os.fsync(file.fileno())


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 with flat memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_byte(answer: DownloadAnswer) -> int:
    if answer.status_code != 206:
        return 0
    match = re.fullmatch(r"bytes (\d+)-\d*/(?:\d+|\*)", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else -1


# Choose the checkpoint, and the file to write it to.


def choose(entries: Sequence[Mapping[str, Any]], run: str, name: str | None) -> dict[str, Any]:
    """Return the newest complete checkpoint of that name (None: of any). Raises DownloadFailed where there is none."""
    matching = [
        entry for entry in entries if name is None or name in (entry["name"], PurePosixPath(entry["name"]).name)
    ]
    complete = [entry for entry in matching if entry["complete"]]
    if complete:
        exact = [entry for entry in complete if entry["name"] == name]
        candidates = [entry for entry in complete if entry.get("latest")] if name is None else exact
        if name is None and not candidates:
            raise DownloadFailed(
                f"It is unclear which files of run {run} form one checkpoint, so none is chosen. Name one "
                f"that `rankzero checkpoints {run}` lists: `rankzero download {run} NAME`."
            )
        saved_first = [entry for entry in complete if entry.get("merged_from") is None] or complete
        return dict(max(candidates or saved_first, key=lambda entry: (entry["created_at"], entry["id"])))
    if matching:
        raise DownloadFailed(f"Checkpoint {matching[0]['name']} is not complete yet.")
    if name is None:
        raise DownloadFailed(f"Run {run} has no checkpoint yet.")
    raise DownloadFailed(f"Run {run} has no checkpoint {name!r}; `rankzero checkpoints {run}` lists them.")


def target_path(name: str, output: Path | None) -> Path:
    """Return the file to write: `output`, else the name's last component in the current folder.

    Raises NotADirectoryError where the folder of `output` does not exist."""
    file_name = PurePosixPath(name.replace("\\", "/")).name
    file_name = "".join(c if c.isprintable() else "_" for c in file_name)
    file_name = file_name.encode()[-LONGEST_NAME_BYTES:].decode(errors="ignore").lstrip(".") or "checkpoint"
    if output is None:
        return Path.cwd() / file_name
    path = output.expanduser().absolute()
    if path.is_dir():
        return path / file_name
    if not path.parent.is_dir():
        raise NotADirectoryError(f"the folder {path.parent} does not exist.")
    return path


def is_there(target: Path, checkpoint: Mapping[str, Any], overwrite: bool) -> bool:
    """Whether `target` already is this checkpoint.

    Raises DownloadFailed where it is another file that may not be overwritten."""
    if not target.exists():
        return False
    same_size = target.is_file() and target.stat().st_size == checkpoint["size_bytes"]
    if same_size and sha256_of(target) == checkpoint["sha256"]:
        return True
    if overwrite and target.is_file():
        return False
    raise DownloadFailed(f"{target} exists and is a different file; choose another path with -o PATH.")
