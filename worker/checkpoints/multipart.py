"""Uploads checkpoints in parts from this node to a bucket, by addresses that the server signs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from worker.checkpoints.watching import CheckpointCopy
from worker.session import bodies
from worker.session.answers import CheckpointUpload, PresignedPart
from worker.session.bodies import FilePart, MayContinue, UploadInterrupted
from worker.session.client import Client
from worker.session.failures import ChecksumMismatch, RequestFailed

READ_BYTES = 1024 * 1024
AT_ONCE = 4
"""Parallel uploads: one connection to a distant bucket uses a fraction of the bandwidth."""
WRONG_DIGEST = ("BadDigest", "InvalidDigest", "ChecksumMismatch")


class BucketUnreachable(Exception):
    """The bucket did not accept a part from this node."""


def part_digests(path: Path, part_bytes: int, sha256: str, may_continue: MayContinue) -> list[str]:
    """The SHA-256 of each part, computed together with that of the whole file.

    Raises ChecksumMismatch if the whole is not `sha256`, UploadInterrupted."""
    whole, digests = hashlib.sha256(), []
    with path.open("rb") as file:
        while True:
            part, size_bytes = hashlib.sha256(), 0
            while size_bytes < part_bytes and (piece := file.read(min(READ_BYTES, part_bytes - size_bytes))):
                whole.update(piece)
                part.update(piece)
                size_bytes += len(piece)
            if not size_bytes:
                break
            digests.append(part.hexdigest())
            if not may_continue():
                raise UploadInterrupted
    if whole.hexdigest() != sha256:
        raise ChecksumMismatch(f"{path.name} changed after it was copied")
    return digests


class BucketUpload:
    """Uploads to a bucket; used by one thread at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.http = httpx2.Client(timeout=bodies.BUCKET_TIMEOUT, headers={"User-Agent": "rankzero-worker"})

    def send(
        self,
        copy: CheckpointCopy,
        upload: CheckpointUpload,
        part_bytes: int,
        digests: Sequence[str],
        may_continue: MayContinue,
    ) -> None:
        """Upload the missing parts. Raises BucketUnreachable, UploadInterrupted and the client's exceptions."""
        missing = range(-(-upload.offset // part_bytes), len(digests))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for first in missing[::AT_ONCE]:
                links = self._client.part_links(upload.checkpoint_id, first + 1, digests[first : first + AT_ONCE])
                offsets = range(first * part_bytes, copy.size_bytes, part_bytes)
                puts = [
                    threads.submit(self._put, link, copy, offset, part_bytes, may_continue)
                    for link, offset in zip(links, offsets, strict=False)
                ]
                for put in puts:
                    put.result()

    def _put(
        self,
        link: PresignedPart,
        copy: CheckpointCopy,
        offset: int,
        part_bytes: int,
        may_continue: MayContinue,
    ) -> None:
        size_bytes = min(part_bytes, copy.size_bytes - offset)
        headers = link.headers | {"Content-Length": str(size_bytes)}
        try:
            with copy.path.open("rb") as file:
                part = FilePart(file.fileno(), offset, size_bytes, may_continue)
                answer = self.http.put(link.url, content=part, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise BucketUnreachable(f"the bucket cannot be reached from this node ({type(error).__name__})") from error
        if answer.is_success:
            return
        if any(word in answer.text for word in WRONG_DIGEST):
            raise ChecksumMismatch(f"the bucket refused a part of {copy.name}: its SHA-256 is different")
        if answer.status_code == 404:
            raise RequestFailed("the bucket no longer has the upload; it is started again")
        raise BucketUnreachable(f"the bucket answered {answer.status_code} to this node")
