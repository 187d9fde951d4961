"""Checkpoints as objects of a bucket: uploaded in parts, verified by the parts' digests or by reading them back."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dashboard.errors import Rejection
from dashboard.object_name import ObjectName
from dashboard.storage.checkpoint_storage import PartLink, Via
from dashboard.storage.downloads import (
    StreamedResponse,
    content_disposition,
    digest_headers,
    not_modified,
)
from dashboard.storage.files import Files
from dashboard.storage.s3 import S3, BucketTrouble, Gone, S3Refused, StoredPart, part_headers
from db.checkpoints import checkpoint_reports
from db.engine import Store
from db.models import Checkpoint
from domain.text.formats import MIB


class Bucket:
    """Checkpoints in buckets. One instance serves all buckets: the checkpoint's row names its own."""

    def __init__(self, store: Store, files: Files, s3: S3, clock: Callable[[], float]) -> None:
        self._store, self._files, self._s3, self._clock = store, files, s3, clock
        self.least_part_bytes = PART_BYTES
        self._verified_buckets: dict[str, bool] = {}

    def batch_bytes(self, size_bytes: int) -> int:
        """See `CheckpointStorage`: the size of a part."""
        needed = -(-size_bytes // MOST_PARTS)
        return max(self.least_part_bytes, -(-needed // MIB) * MIB)

    def piece_bytes(self, size_bytes: int) -> int:
        """See `CheckpointStorage`: the size of a part."""
        return self.batch_bytes(size_bytes)

    def part_bytes(self, size_bytes: int) -> int | None:
        """See `CheckpointStorage`."""
        return self.batch_bytes(size_bytes)

    def require_free_space(self, size_bytes: int) -> None:
        """See `CheckpointStorage`: a bucket is never full."""

    def durable_bytes(self, checkpoint: Checkpoint, *, refresh: bool) -> int:
        """See `CheckpointStorage`. An object completed just before a crash counts, though it is not listed."""
        if checkpoint.upload_id is None:
            return 0
        if not refresh:
            return checkpoint.received_bytes
        try:
            parts = self._s3.parts(_name(checkpoint), checkpoint.upload_id)
        except Gone:
            if self._has_right_size(checkpoint):
                return checkpoint.size_bytes
            self._restart(checkpoint)
            return 0
        received_bytes = sum(part.size_bytes for part in self._in_order(checkpoint, parts))
        checkpoint_reports.received(self._store, checkpoint.id, received_bytes)
        return received_bytes

    def add(self, checkpoint: Checkpoint, offset: int, content: memoryview) -> int:
        """See `CheckpointStorage`: a whole part, or nothing."""
        size_bytes = self.batch_bytes(checkpoint.size_bytes)
        if offset % size_bytes or len(content) != min(size_bytes, checkpoint.size_bytes - offset):
            return offset
        number = offset // size_bytes + 1
        try:
            self._s3.put_part(_name(checkpoint), self._upload_of(checkpoint), number, bytes(content))
        except Gone:
            self._restart(checkpoint)
            return 0
        return offset + len(content)

    def sync(self, checkpoint: Checkpoint) -> None:
        """See `CheckpointStorage`: a bucket's answer is durable."""

    def links(self, checkpoint: Checkpoint, first: int, sha256s: Sequence[str]) -> list[PartLink]:
        """See `CheckpointStorage`. Assumes that earlier parts are stored; `finish` checks. Raises Rejection."""
        size_bytes = self.batch_bytes(checkpoint.size_bytes)
        last = max(1, -(-checkpoint.size_bytes // size_bytes))
        if first + len(sha256s) - 1 > last:
            raise Rejection(422, f"first: the checkpoint has {last} parts of {size_bytes} bytes.", "first")
        upload_id, name = self._upload_of(checkpoint), _name(checkpoint)
        received_bytes = (first - 1) * size_bytes
        if received_bytes > checkpoint.received_bytes:
            checkpoint_reports.received(self._store, checkpoint.id, received_bytes)
        return [
            PartLink(self._s3.part_url(name, upload_id, number, sha256), part_headers(sha256))
            for number, sha256 in enumerate(sha256s, first)
        ]

    def finish(self, checkpoint: Checkpoint, adopted: str | None, part_sha256s: Sequence[str]) -> bool:
        """See `CheckpointStorage`. Compares the digests of a bucket that verifies them, else reads the object back."""
        name = _name(checkpoint)
        try:
            parts = self._arrived(checkpoint)
        except Gone:  # a crash came between the bucket's completion and the entry in the store
            return self._reads_back(checkpoint) or self._restart(checkpoint)
        stored_sha256s = [part.sha256 for part in parts]
        if sum(part.size_bytes for part in self._in_order(checkpoint, parts)) != checkpoint.size_bytes:
            return self._restart(checkpoint)
        if part_sha256s and any(
            stored not in (None, announced) for stored, announced in zip(stored_sha256s, part_sha256s, strict=False)
        ):
            return self._restart(checkpoint)
        assert checkpoint.upload_id is not None
        self._s3.complete(name, checkpoint.upload_id, parts)
        is_proven = stored_sha256s == list(part_sha256s) and self._verifies_checksums(name)
        return is_proven or self._reads_back(checkpoint) or self._restart(checkpoint)

    def response(
        self, request: Request, checkpoint: Checkpoint, via: Via, more: Mapping[str, str] | None = None
    ) -> Response:
        """See `CheckpointStorage`. Raises Gone when the object is not the one that was stored."""
        name, headers = _name(checkpoint), digest_headers(checkpoint.sha256, more)
        if not_modified(request, checkpoint.sha256):
            return Response(status_code=304, headers=headers)
        if via == "bucket" and request.method == "GET":
            url = self._s3.url(name, content_disposition(checkpoint.path))
            return RedirectResponse(url, 307, headers | {"Cache-Control": "private, no-store"})
        stat = self._s3.stat(name)
        if stat.size_bytes != checkpoint.size_bytes:
            raise Gone(f"s3://{name.bucket}/{name.key} is not the object that was stored.")
        return StreamedResponse(
            lambda start: self._s3.open(name, start),
            stat.size_bytes,
            stat.modified_at,
            checkpoint.path,
            headers,
        )

    @contextmanager
    def as_file(self, checkpoint: Checkpoint, folder: Path) -> Iterator[Path]:
        """See `CheckpointStorage`. Raises Gone when the object is not the one that was stored."""
        self._files.require_free_space(checkpoint.size_bytes)
        path, hashing = folder / f"{checkpoint.id}.copy.part", hashlib.sha256()
        try:
            with path.open("wb") as file:
                for piece in self._s3.read(_name(checkpoint), READ_BYTES):
                    file.write(piece)
                    hashing.update(piece)
            if hashing.hexdigest() != checkpoint.sha256:
                raise Gone(f"{checkpoint.location} is not the object that was stored.")
            yield path
        finally:
            path.unlink(missing_ok=True)

    # -- parts ---------------------------------------------------------------------------------

    def _upload_of(self, checkpoint: Checkpoint) -> str:
        if checkpoint.upload_id is None:
            checkpoint.upload_id = self._s3.begin(_name(checkpoint))
            checkpoint_reports.upload_began(self._store, checkpoint.id, checkpoint.upload_id, self._clock())
        return checkpoint.upload_id

    def _arrived(self, checkpoint: Checkpoint) -> list[StoredPart]:
        """The stored parts of the upload. Raises Gone."""
        name = _name(checkpoint)
        if checkpoint.size_bytes == 0:  # an object has one part at least
            self._s3.put_part(name, self._upload_of(checkpoint), 1, b"")
        if checkpoint.upload_id is None:
            raise Gone("Nothing of the checkpoint has arrived.")
        return self._s3.parts(name, checkpoint.upload_id)

    def _in_order(self, checkpoint: Checkpoint, parts: Sequence[StoredPart]) -> list[StoredPart]:
        """The leading parts up to the first one that is missing or has the wrong size."""
        size_bytes, complete = self.batch_bytes(checkpoint.size_bytes), []
        remaining_bytes = checkpoint.size_bytes
        for number, part in enumerate(parts, 1):
            if part.number != number or part.size_bytes != min(size_bytes, remaining_bytes):
                break
            complete.append(part)
            remaining_bytes -= part.size_bytes
        return complete

    def _restart(self, checkpoint: Checkpoint) -> bool:
        """Delete everything uploaded so far; returns False, for `finish`."""
        with suppress(BucketTrouble):
            self._s3.delete(_name(checkpoint))
        checkpoint.upload_id = None
        checkpoint_reports.upload_lost(self._store, checkpoint.id)
        return False

    # -- proofs --------------------------------------------------------------------------------

    def _verifies_checksums(self, name: ObjectName) -> bool:
        """Whether this bucket refuses bytes that do not match their SHA-256; tested once per bucket."""
        if name.bucket not in self._verified_buckets:
            folder = ObjectName(name.bucket, name.key.rpartition("/")[0])
            self._verified_buckets[name.bucket] = refuses_wrong_bytes(self._s3, folder)
        return self._verified_buckets[name.bucket]

    def _reads_back(self, checkpoint: Checkpoint) -> bool:
        hashing = hashlib.sha256()
        if not self._has_right_size(checkpoint):
            return False
        for piece in self._s3.read(_name(checkpoint), READ_BYTES):
            hashing.update(piece)
        return hashing.hexdigest() == checkpoint.sha256

    def _has_right_size(self, checkpoint: Checkpoint) -> bool:
        try:
            return self._s3.stat(_name(checkpoint)).size_bytes == checkpoint.size_bytes
        except Gone:
            return False


log = logging.getLogger("rankzero")
PART_BYTES = 16 * MIB
MOST_PARTS = 9_000
"""A bucket allows 10,000; large checkpoints have larger parts to stay below that."""
READ_BYTES = 4 * MIB


def try_out(s3: S3, folder: ObjectName) -> None:
    """Test every operation on checkpoints with a small object. Raises BucketTrouble."""
    probe, content = _probe(folder.bucket, folder.key), b"rankzero doctor"
    upload_id = s3.begin(probe)
    try:
        s3.put_part(probe, upload_id, 1, content)
        s3.complete(probe, upload_id, s3.parts(probe, upload_id))
        if b"".join(s3.read(probe, READ_BYTES)) != content:
            raise BucketTrouble(f"The bucket {probe.bucket} returned other bytes than were stored.")
    finally:
        s3.delete(probe)


def refuses_wrong_bytes(s3: S3, folder: ObjectName) -> bool:
    """Whether the bucket refuses a few bytes sent with the SHA-256 of others."""
    probe = _probe(folder.bucket, folder.key)
    try:
        s3.put(probe, b"these bytes", hashlib.sha256(b"other bytes").hexdigest())
    except S3Refused:
        return True
    s3.delete(probe)
    return False


def _probe(bucket: str, folder: str) -> ObjectName:
    return ObjectName(bucket, f"{folder}/rankzero-check-{secrets.token_hex(4)}".lstrip("/"))


def _name(checkpoint: Checkpoint) -> ObjectName:
    assert checkpoint.location is not None
    return ObjectName.parse(checkpoint.location)
