"""Brings snapshots in parts to a bucket: straight from this node, or through the server where that cannot be."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from worker.checkpoints.watching import CheckpointCopy
from worker.session import other_servers
from worker.session.body_limit import LEAST_BYTES
from worker.session.client import CheckpointPlace, Client, PresignedPart
from worker.session.failures import ChecksumMismatch, OffsetMismatch, RequestFailed, ServerAway, TooLarge

log = logging.getLogger(__name__)
READ_BYTES = 1024 * 1024
AT_ONCE = 4
"""One connection to a bucket far away carries a fraction of what the line does."""
INDIRECT_FOR_S = 600.0
"""A bucket that cannot be reached from here is tried again after so long; meanwhile the server passes on."""
WRONG_SUM = ("BadDigest", "InvalidDigest", "ChecksumMismatch")


class NotDirectly(Exception):
    """The bucket did not take a part from this node."""


class _Leaving(Exception):
    """The worker ends; what has come stays."""


def part_sums(path: Path, part_bytes: int, sha256: str, may_go_on: Callable[[], bool]) -> list[str] | None:
    """The SHA-256 of each part, in one reading with that of the whole. None: there was no time for it.

    Raises ChecksumMismatch when the whole is not `sha256`: then neither are its parts what was offered."""
    whole, sums = hashlib.sha256(), []
    with path.open("rb") as file:
        while True:
            part, size_bytes = hashlib.sha256(), 0
            while size_bytes < part_bytes and (piece := file.read(min(READ_BYTES, part_bytes - size_bytes))):
                whole.update(piece)
                part.update(piece)
                size_bytes += len(piece)
            if not size_bytes:
                break
            sums.append(part.hexdigest())
            if not may_go_on():
                return None
    if whole.hexdigest() != sha256:
        raise ChecksumMismatch(f"{path.name} is not what it was when it was copied")
    return sums


class BucketWay:
    """How this node's checkpoints come to the bucket; one thread at a time."""

    def __init__(self, client: Client, label: str, bucket: httpx.Client | None = None) -> None:
        self._client, self._label = client, label
        self._bucket = bucket or httpx.Client(
            timeout=other_servers.TIMEOUT, headers={"User-Agent": "rankzero-worker"}
        )
        self._indirect_until = float("-inf")

    def bring(
        self,
        snapshot: CheckpointCopy,
        place: CheckpointPlace,
        part_bytes: int,
        sums: Sequence[str],
        may_go_on: Callable[[], bool],
    ) -> bool:
        """Everything that is missing; False when it was broken off. What the server raises goes through."""
        if time.monotonic() >= self._indirect_until:
            try:
                return self._directly(snapshot, place, part_bytes, sums, may_go_on)
            except NotDirectly as error:
                log.warning("attempt %s: checkpoints go through the server for now: %s", self._label, error)
                self._indirect_until = time.monotonic() + INDIRECT_FOR_S
        try:
            return through_server(self._client, snapshot, place, may_go_on)
        except ServerAway:
            self._indirect_until = float("-inf")  # nobody reaches it: the way from here was not to blame
            raise

    def _directly(
        self,
        snapshot: CheckpointCopy,
        place: CheckpointPlace,
        part_bytes: int,
        sums: Sequence[str],
        may_go_on: Callable[[], bool],
    ) -> bool:
        missing = range(-(-place.offset // part_bytes), len(sums))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for first in missing[::AT_ONCE]:
                wanted = sums[first : first + AT_ONCE]
                links = self._client.part_links(place.checkpoint_id, first + 1, wanted)
                offsets = range(first * part_bytes, snapshot.size_bytes, part_bytes)
                puts = [
                    threads.submit(self._put, link, snapshot, offset, part_bytes, may_go_on)
                    for link, offset in zip(links, offsets, strict=False)
                ]
                try:
                    for put in puts:
                        put.result()
                except _Leaving:
                    return False
        return True

    def _put(
        self,
        link: PresignedPart,
        snapshot: CheckpointCopy,
        offset: int,
        part_bytes: int,
        may_go_on: Callable[[], bool],
    ) -> None:
        size_bytes = min(part_bytes, snapshot.size_bytes - offset)
        content = _read(snapshot.path, offset, size_bytes, may_go_on)
        headers = link.headers | {"Content-Length": str(size_bytes)}
        try:
            answer = self._bucket.put(link.url, content=content, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotDirectly(
                f"the bucket cannot be reached from this node ({type(error).__name__})"
            ) from error
        if answer.is_success:
            return
        if any(word in answer.text for word in WRONG_SUM):
            raise ChecksumMismatch(f"the bucket refused a part of {snapshot.name}: its checksum is another")
        if answer.status_code == 404:
            raise RequestFailed("the bucket has forgotten the upload; it begins anew")
        raise NotDirectly(f"the bucket answered {answer.status_code} to this node")


def through_server(
    client: Client, snapshot: CheckpointCopy, place: CheckpointPlace, may_go_on: Callable[[], bool]
) -> bool:
    """Send what the server lacks; False when it was broken off."""
    offset = place.offset
    with snapshot.path.open("rb") as file:
        while offset < snapshot.size_bytes:
            if not may_go_on():
                return False
            offset = _send_piece(client, place, file.fileno(), offset)
            if offset > snapshot.size_bytes:
                raise RequestFailed(f"{snapshot.name} ends before byte {offset}: not the server's word")
    return True


def _send_piece(client: Client, place: CheckpointPlace, file: int, offset: int) -> int:
    """Send as much as passes; the offset behind what is durable. Raises Refused when not even little does."""
    most = client.body_limit.most(place.batch_bytes)
    while True:
        piece = os.pread(file, most, offset)
        if not piece:
            raise FileNotFoundError("the snapshot is shorter than it was")
        try:
            end = client.send_checkpoint(place.checkpoint_id, offset, piece)
        except OffsetMismatch as mismatch:
            return mismatch.have
        except TooLarge:
            most = len(piece) // 2
            if most < LEAST_BYTES:
                raise
            continue
        if end == offset and len(piece) < place.batch_bytes and place.part_bytes is not None:
            raise RequestFailed(
                f"the bucket takes parts of {place.batch_bytes:,} bytes, and {len(piece):,} pass to the server at once"
            )
        return end


def _read(path: Path, offset: int, size_bytes: int, may_go_on: Callable[[], bool]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while size_bytes:
            if not may_go_on():
                raise _Leaving
            piece = os.pread(file.fileno(), min(READ_BYTES, size_bytes), offset)
            if not piece:
                raise FileNotFoundError(f"{path} is shorter than it was")
            yield piece
            offset, size_bytes = offset + len(piece), size_bytes - len(piece)
