"""A client of S3-compatible servers for checkpoints: multipart uploads, signed addresses, reads, deletions."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from dashboard.object_name import ObjectName
from domain.clock import SYSTEM_CLOCK, Clock


class S3:
    """A client of the server that the usual AWS_* variables name; safe to use from several threads."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._connected: Any = None
        self._connecting = threading.Lock()
        self._away_until = 0.0
        self._away: str | None = None

    @property
    def endpoint(self) -> str:
        """The server's address."""
        return str(self._client.meta.endpoint_url)

    # -- uploads -------------------------------------------------------------------------------

    def begin(self, at: ObjectName) -> str:
        """The id of the object's multipart upload; an existing upload is continued."""
        with self._errors_as_trouble(at):
            listing = self._client.list_multipart_uploads(Bucket=at.bucket, Prefix=at.key)
            for upload in listing.get("Uploads", ()):
                if upload["Key"] == at.key:
                    return str(upload["UploadId"])
            target = {"Bucket": at.bucket, "Key": at.key, "ContentType": "application/octet-stream"}
            response = self._client.create_multipart_upload(**target, ChecksumAlgorithm="SHA256")
            return str(response["UploadId"])

    def put_part(self, at: ObjectName, upload_id: str, number: int, content: bytes | bytearray) -> None:
        """Store a part. Raises Gone when the upload does not exist."""
        digest = _base64(hashlib.sha256(content).hexdigest())
        part = {"UploadId": upload_id, "PartNumber": number, "ChecksumSHA256": digest}
        with self._errors_as_trouble(at):
            self._client.upload_part(Bucket=at.bucket, Key=at.key, Body=content, **part)

    def part_url(self, at: ObjectName, upload_id: str, number: int, sha256: str) -> str:
        """A signed address at which a node may PUT this part, and no other bytes.

        The header x-amz-checksum-sha256 must be sent with it (see `part_headers`)."""
        part = {"UploadId": upload_id, "PartNumber": number, "ChecksumSHA256": _base64(sha256)}
        return self._signed("upload_part", at, part)

    def parts(self, at: ObjectName, upload_id: str) -> list[StoredPart]:
        """All stored parts of the upload, in order. Raises Gone when the upload does not exist."""
        parts: list[StoredPart] = []
        marker = 0
        while True:
            with self._errors_as_trouble(at):
                page = self._client.list_parts(
                    Bucket=at.bucket, Key=at.key, UploadId=upload_id, PartNumberMarker=marker
                )
            parts += [_stored(part) for part in page.get("Parts", ())]
            if not page.get("IsTruncated") or not page.get("Parts"):
                return parts
            marker = parts[-1].number

    def complete(self, at: ObjectName, upload_id: str, parts: Sequence[StoredPart]) -> None:
        """Join the parts to an object. Raises Gone when the upload does not exist."""
        listed = [
            {"PartNumber": part.number, "ETag": part.etag}
            | ({"ChecksumSHA256": _base64(part.sha256)} if part.sha256 else {})
            for part in parts
        ]
        with self._errors_as_trouble(at):
            self._client.complete_multipart_upload(
                Bucket=at.bucket, Key=at.key, UploadId=upload_id, MultipartUpload={"Parts": listed}
            )

    # -- objects -------------------------------------------------------------------------------

    def put(self, at: ObjectName, content: bytes, sha256: str) -> None:
        """Store a small object. Raises S3Refused when the bytes do not match the SHA-256."""
        with self._errors_as_trouble(at):
            self._client.put_object(Bucket=at.bucket, Key=at.key, Body=content, ChecksumSHA256=_base64(sha256))

    def stat(self, at: ObjectName) -> Stat:
        """Size and time of an object. Raises Gone."""
        with self._errors_as_trouble(at):
            response = self._client.head_object(Bucket=at.bucket, Key=at.key)
            return Stat(int(response["ContentLength"]), response["LastModified"].timestamp())

    def open(self, at: ObjectName, start: int = 0) -> S3Body:
        """A stream of an object's bytes from `start` on. Raises Gone."""
        with self._errors_as_trouble(at):
            options = {"Range": f"bytes={start}-"} if start else {}
            body: S3Body = self._client.get_object(Bucket=at.bucket, Key=at.key, **options)["Body"]
            return body

    def read(self, at: ObjectName, piece_bytes: int) -> Iterator[bytes]:
        """An object's bytes, piece by piece. Raises Gone."""
        body = self.open(at)
        try:
            with self._errors_as_trouble(at):
                while piece := body.read(piece_bytes):
                    yield piece
        finally:
            body.close()

    def url(self, at: ObjectName, disposition: str) -> str:
        """A signed address at which anybody may GET the object, for a while."""
        response_headers = {
            "ResponseContentDisposition": disposition,
            "ResponseContentType": "application/octet-stream",
            "ResponseCacheControl": "private, no-store",
        }
        return self._signed("get_object", at, response_headers)

    def delete(self, at: ObjectName) -> None:
        """Delete an object and all its uploads, if there are any."""
        with self._errors_as_trouble(at):
            listing = self._client.list_multipart_uploads(Bucket=at.bucket, Prefix=at.key)
            for upload in listing.get("Uploads", ()):
                if upload["Key"] == at.key:
                    with suppress(self._client.exceptions.NoSuchUpload):
                        self._client.abort_multipart_upload(Bucket=at.bucket, Key=at.key, UploadId=upload["UploadId"])
            self._client.delete_object(Bucket=at.bucket, Key=at.key)

    # -- the connection ------------------------------------------------------------------------

    @property
    def _client(self) -> Any:
        with self._connecting:
            if self._connected is None:
                self._connected = _connect()
            return self._connected

    def _signed(self, operation: str, at: ObjectName, more: Mapping[str, object]) -> str:
        with self._errors_as_trouble(at):
            params = {"Bucket": at.bucket, "Key": at.key, **more}
            return str(self._client.generate_presigned_url(operation, Params=params, ExpiresIn=SIGNED_FOR_S))

    @contextmanager
    def _errors_as_trouble(self, at: ObjectName) -> Iterator[None]:
        """Convert errors of the client to BucketTrouble."""
        if self._away is not None and self._clock.now() < self._away_until:
            raise BucketAway(self._away)
        _ = self._client  # raises BucketTrouble when botocore is not installed
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
            self._away = None
        except ClientError as error:
            self._away = None
            raise _refusal(at, error) from error
        except (BotoCoreError, OSError) as error:
            trouble = _connection_failure(at, error)
            if isinstance(trouble, BucketAway):
                self._away, self._away_until = str(trouble), self._clock.now() + AWAY_S
            raise trouble from error


CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0
CONNECTIONS = 32
AWAY_S = 3.0
"""Seconds without a new attempt after the server could not be reached, so that no thread waits in vain."""
SIGNED_FOR_S = 15 * 60
"""Seconds within which a request to a signed address must begin; it may take longer."""


class BucketTrouble(Exception):
    """The bucket failed; the message is one sentence for people."""


class BucketAway(BucketTrouble):
    """The bucket cannot be reached."""


class Gone(BucketTrouble):
    """The object or upload does not exist (any more)."""


class S3Refused(BucketTrouble):
    """The bucket refused bytes that do not match their announced digest."""


@dataclass(frozen=True)
class StoredPart:
    """A part of an upload that the bucket has."""

    number: int
    size_bytes: int
    etag: str
    sha256: str | None
    """In hex; None when the server stores none."""


@dataclass(frozen=True)
class Stat:
    """Size and time of an object."""

    size_bytes: int
    modified_at: float


class S3Body(Protocol):
    """An object's bytes as a stream."""

    def read(self, amount: int) -> bytes: ...

    def close(self) -> None: ...


def part_headers(sha256: str) -> dict[str, str]:
    """The headers to send with a part to its signed address."""
    return {"x-amz-checksum-sha256": _base64(sha256)}


def _connect() -> Any:
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.session import get_session
    except ImportError:
        raise BucketTrouble(
            "The package botocore is not installed with the dashboard: pip install 'rankzero[s3]'."
        ) from None
    session = get_session()
    config = Config(
        signature_version="s3v4",
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=CONNECTIONS,
        retries={"total_max_attempts": 2, "mode": "standard"},
        request_checksum_calculation="when_required",  # other servers than Amazon's support no others
        response_checksum_validation="when_required",
    )
    region = session.get_config_variable("region") or "us-east-1"
    try:
        return session.create_client("s3", region_name=region, config=config)
    except (BotoCoreError, ValueError) as error:
        raise BucketTrouble(f"The AWS_* variables of the dashboard cannot be used: {error}") from error


def _refusal(at: ObjectName, error: Any) -> BucketTrouble:
    details = error.response.get("Error", {})
    code, text = str(details.get("Code", "")), str(details.get("Message", "")).rstrip(".")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code == "NoSuchBucket":
        return BucketTrouble(f"The bucket {at.bucket} does not exist; create it, or change RANKZERO_CHECKPOINTS_URL.")
    if code in ("NoSuchUpload", "NoSuchKey", "404", "InvalidPart"):
        return Gone(f"s3://{at.bucket}/{at.key} is not in the bucket ({code}).")
    if code in ("BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"):
        return S3Refused(f"The bucket {at.bucket} refused bytes whose checksum does not match ({code}).")
    if status == 403 or code in ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        return BucketTrouble(
            f"The bucket {at.bucket} denies the dashboard access ({code}: {text}); "
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and that user's permissions."
        )
    return BucketTrouble(f"The bucket {at.bucket} answered {code or status}: {text}.")


def _connection_failure(at: ObjectName, error: Exception) -> BucketTrouble:
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
        return BucketTrouble(f"The bucket {at.bucket} cannot be used: {error}")
    return BucketAway(f"The bucket {at.bucket} cannot be reached ({kind}); check AWS_ENDPOINT_URL and the network.")


def _stored(part: dict[str, Any]) -> StoredPart:
    digest = part.get("ChecksumSHA256")
    sha256 = base64.b64decode(digest).hex() if digest else None
    return StoredPart(int(part["PartNumber"]), int(part["Size"]), str(part["ETag"]), sha256)


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
