"""An S3-compatible server as far as checkpoints need it: multipart uploads, signed addresses, reads, deletions."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from dashboard.object_name import ObjectName

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0
CONNECTIONS = 32
AWAY_S = 3.0
"""After it could not be reached, it is not tried again for so long: nobody's thread waits in vain meanwhile."""
SIGNED_FOR_S = 15 * 60
"""A signed address begins to work no later than this; what has begun may take longer."""


class BucketTrouble(Exception):
    """The bucket does not do what it was asked; one sentence for people."""


class BucketAway(BucketTrouble):
    """It cannot be reached."""


class Gone(BucketTrouble):
    """There is no such object or upload (any more)."""


class S3Refused(BucketTrouble):
    """It does not take these bytes, because they are not those that were announced."""


@dataclass(frozen=True)
class StoredPart:
    """A part of an upload that the bucket has."""

    number: int
    size_bytes: int
    etag: str
    sha256: str | None
    """In hex; None where the server keeps none."""


@dataclass(frozen=True)
class Stat:
    """What a bucket says of an object."""

    size_bytes: int
    modified_at: float


class S3Body(Protocol):
    """An object's bytes as they come."""

    def read(self, amount: int) -> bytes: ...

    def close(self) -> None: ...


class S3:
    """The server that the usual AWS_* variables name; safe to use from several threads."""

    def __init__(self) -> None:
        self._opened: Any = None
        self._opening = threading.Lock()
        self._away_until = 0.0
        self._away: str | None = None

    @property
    def endpoint(self) -> str:
        """The address at which it is spoken to."""
        return str(self._client.meta.endpoint_url)

    # -- uploads -------------------------------------------------------------------------------

    def begin(self, at: ObjectName) -> str:
        """The id of the multipart upload for an object; one that was begun before is found again."""
        with self._told(at):
            known = self._client.list_multipart_uploads(Bucket=at.bucket, Prefix=at.key)
            for upload in known.get("Uploads", ()):
                if upload["Key"] == at.key:
                    return str(upload["UploadId"])
            named = {"Bucket": at.bucket, "Key": at.key, "ContentType": "application/octet-stream"}
            answer = self._client.create_multipart_upload(**named, ChecksumAlgorithm="SHA256")
            return str(answer["UploadId"])

    def put_part(self, at: ObjectName, upload_id: str, number: int, content: bytes) -> None:
        """Store a part. Raises Gone when the upload is."""
        digest = _base64(hashlib.sha256(content).hexdigest())
        part = {"UploadId": upload_id, "PartNumber": number, "ChecksumSHA256": digest}
        with self._told(at):
            self._client.upload_part(Bucket=at.bucket, Key=at.key, Body=content, **part)

    def part_url(self, at: ObjectName, upload_id: str, number: int, sha256: str) -> str:
        """Where somebody without credentials may PUT this part, and no other bytes.

        The header x-amz-checksum-sha256 must be sent with it (see `part_headers`)."""
        part = {"UploadId": upload_id, "PartNumber": number, "ChecksumSHA256": _base64(sha256)}
        return self._signed("upload_part", at, part)

    def parts(self, at: ObjectName, upload_id: str) -> list[StoredPart]:
        """All parts there are, in order. Raises Gone when the upload is."""
        found: list[StoredPart] = []
        after = 0
        while True:
            with self._told(at):
                page = self._client.list_parts(
                    Bucket=at.bucket, Key=at.key, UploadId=upload_id, PartNumberMarker=after
                )
            found += [_stored(part) for part in page.get("Parts", ())]
            if not page.get("IsTruncated") or not page.get("Parts"):
                return found
            after = found[-1].number

    def complete(self, at: ObjectName, upload_id: str, parts: Sequence[StoredPart]) -> None:
        """Make an object of the parts. Raises Gone when the upload is."""
        listed = [
            {"PartNumber": part.number, "ETag": part.etag}
            | ({"ChecksumSHA256": _base64(part.sha256)} if part.sha256 else {})
            for part in parts
        ]
        with self._told(at):
            self._client.complete_multipart_upload(
                Bucket=at.bucket, Key=at.key, UploadId=upload_id, MultipartUpload={"Parts": listed}
            )

    # -- objects -------------------------------------------------------------------------------

    def put(self, at: ObjectName, content: bytes, sha256: str) -> None:
        """Store a small object. Raises S3Refused when the bytes are others than announced."""
        with self._told(at):
            self._client.put_object(
                Bucket=at.bucket, Key=at.key, Body=content, ChecksumSHA256=_base64(sha256)
            )

    def stat(self, at: ObjectName) -> Stat:
        """An object's size and time. Raises Gone."""
        with self._told(at):
            answer = self._client.head_object(Bucket=at.bucket, Key=at.key)
            return Stat(int(answer["ContentLength"]), answer["LastModified"].timestamp())

    def open(self, at: ObjectName, start: int = 0) -> S3Body:
        """An object's bytes from `start` on. Raises Gone."""
        with self._told(at):
            options = {"Range": f"bytes={start}-"} if start else {}
            body: S3Body = self._client.get_object(Bucket=at.bucket, Key=at.key, **options)["Body"]
            return body

    def read(self, at: ObjectName, piece_bytes: int) -> Iterator[bytes]:
        """An object from its beginning to its end. Raises Gone."""
        body = self.open(at)
        try:
            with self._told(at):
                while piece := body.read(piece_bytes):
                    yield piece
        finally:
            body.close()

    def url(self, at: ObjectName, disposition: str) -> str:
        """Where somebody without credentials may GET the object, for a while."""
        answer = {
            "ResponseContentDisposition": disposition,
            "ResponseContentType": "application/octet-stream",
            "ResponseCacheControl": "private, no-store",
        }
        return self._signed("get_object", at, answer)

    def delete(self, at: ObjectName) -> None:
        """Delete an object and all uploads of it; there need be none."""
        with self._told(at):
            known = self._client.list_multipart_uploads(Bucket=at.bucket, Prefix=at.key)
            for upload in known.get("Uploads", ()):
                if upload["Key"] == at.key:
                    with suppress(self._client.exceptions.NoSuchUpload):
                        self._client.abort_multipart_upload(
                            Bucket=at.bucket, Key=at.key, UploadId=upload["UploadId"]
                        )
            self._client.delete_object(Bucket=at.bucket, Key=at.key)

    # -- the connection ------------------------------------------------------------------------

    @property
    def _client(self) -> Any:
        with self._opening:
            if self._opened is None:
                self._opened = _connect()
            return self._opened

    def _signed(self, operation: str, at: ObjectName, more: Mapping[str, object]) -> str:
        with self._told(at):
            named = {"Bucket": at.bucket, "Key": at.key, **more}
            return str(self._client.generate_presigned_url(operation, Params=named, ExpiresIn=SIGNED_FOR_S))

    @contextmanager
    def _told(self, at: ObjectName) -> Iterator[None]:
        """Turn what goes wrong into a sentence; raises BucketTrouble."""
        if self._away is not None and time.monotonic() < self._away_until:
            raise BucketAway(self._away)
        _ = self._client  # says so where botocore is not installed
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
            self._away = None
        except ClientError as error:
            self._away = None
            raise _answered(at, error) from error
        except (BotoCoreError, OSError) as error:
            trouble = _unanswered(at, error)
            if isinstance(trouble, BucketAway):
                self._away, self._away_until = str(trouble), time.monotonic() + AWAY_S
            raise trouble from error


def part_headers(sha256: str) -> dict[str, str]:
    """What has to be sent with a part to its signed address."""
    return {"x-amz-checksum-sha256": _base64(sha256)}


def _connect() -> Any:
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.session import get_session
    except ImportError:
        raise BucketTrouble(
            "The package botocore is not installed beside the dashboard: pip install 'rankzero[s3]'."
        ) from None
    session = get_session()
    config = Config(
        signature_version="s3v4",
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=CONNECTIONS,
        retries={"total_max_attempts": 2, "mode": "standard"},
        request_checksum_calculation="when_required",  # servers other than Amazon's know no others
        response_checksum_validation="when_required",
    )
    region = session.get_config_variable("region") or "us-east-1"
    try:
        return session.create_client("s3", region_name=region, config=config)
    except (BotoCoreError, ValueError) as error:
        raise BucketTrouble(f"The AWS_* variables of the dashboard cannot be used: {error}") from error


def _answered(at: ObjectName, error: Any) -> BucketTrouble:
    about = error.response.get("Error", {})
    code, text = str(about.get("Code", "")), str(about.get("Message", "")).rstrip(".")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code == "NoSuchBucket":
        return BucketTrouble(
            f"The bucket {at.bucket} does not exist; make it, or set RANKZERO_CHECKPOINTS_URL."
        )
    if code in ("NoSuchUpload", "NoSuchKey", "404", "InvalidPart"):
        return Gone(f"s3://{at.bucket}/{at.key} is not in the bucket ({code}).")
    if code in ("BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"):
        return S3Refused(f"The bucket {at.bucket} refused bytes whose checksum is another ({code}).")
    if status == 403 or code in ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        return BucketTrouble(
            f"The bucket {at.bucket} does not let the dashboard in ({code}: {text}); "
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the rights of that user."
        )
    return BucketTrouble(f"The bucket {at.bucket} answered {code or status}: {text}.")


def _unanswered(at: ObjectName, error: Exception) -> BucketTrouble:
    kind = type(error).__name__
    if kind in (
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ProfileNotFound",
    ):
        return BucketTrouble(
            f"The dashboard has no credentials for the bucket {at.bucket}: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (or AWS_PROFILE) where it is started."
        )
    if kind in ("ParamValidationError", "InvalidBucketName"):
        return BucketTrouble(f"The bucket {at.bucket} cannot be asked: {error}")
    return BucketAway(
        f"The bucket {at.bucket} cannot be reached ({kind}); check AWS_ENDPOINT_URL and the network."
    )


def _stored(part: dict[str, Any]) -> StoredPart:
    digest = part.get("ChecksumSHA256")
    sha256 = base64.b64decode(digest).hex() if digest else None
    return StoredPart(int(part["PartNumber"]), int(part["Size"]), str(part["ETag"]), sha256)


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
