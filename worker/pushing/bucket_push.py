"""Push files into a bucket: in parts, of which those that are there already are not sent again."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from domain.checkpoint_use.model_card import CARD_NAME
from domain.checkpoint_use.push_target import PushTarget
from worker.pushing.push_report import Cut, PushFailed, PushRefused, PushReport
from worker.pushing.pushed_files import PushedFile

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""Weights in one file, and the index of several, as save_pretrained calls them."""


class BucketPush:
    """A folder of a bucket, opened with a person's own credentials, never with the node's."""

    def __init__(self, target: PushTarget, secrets: Mapping[str, str], report: PushReport) -> None:
        self._target, self._report = target, report
        self._client = _connected(secrets)

    def open(self, is_private: bool) -> list[str]:
        """Check that the bucket is there and return what to note. Raises PushRefused, Cut."""
        if not is_private:
            raise PushRefused("Who may read a bucket is the bucket's own setting: push without --public.")
        with self._errors_in_words():
            self._client.list_multipart_uploads(Bucket=self._target.place, Prefix=self._key(""), MaxUploads=1)
        return []

    def card(self) -> str | None:
        """Return the model card that is there. Raises PushRefused, Cut."""
        with self._errors_in_words():
            try:
                body = self._client.get_object(Bucket=self._target.place, Key=self._key(CARD_NAME))["Body"]
            except self._client.exceptions.NoSuchKey:
                return None
            return str(body.read(LONGEST_CARD_BYTES).decode(errors="replace"))

    def send(self, files: list[PushedFile], message: str) -> dict[str, Any]:
        """Send what is not there yet, and check all of it. Raises PushRefused, Cut, PushFailed, OSError."""
        self._require_no_older_weights({file.name for file in files})
        sums = {}
        for file in files:
            self._report.doing(f"reads {file.name}")
            sums[file.name] = _sums(file)
        done_bytes = 0
        for file in files:
            self._report.doing(f"sends {file.name}")
            if not self._is_there(file, sums[file.name]):
                self._send(file, sums[file.name], done_bytes)
            done_bytes += file.size_bytes
            self._report.at(done_bytes)
        self._check(files, sums)
        return {"url": str(self._target)}

    def _require_no_older_weights(self, names: Collection[str]) -> None:
        """Raises PushRefused where a file of an earlier push would be loaded in place of the shards."""
        if INDEX in names and self._head(PushedFile(SINGLE, b"")) is not None:
            raise PushRefused(
                f"{self._target} has the {SINGLE} of an earlier push, which from_pretrained would load in place of "
                "these shards: delete it there, or push to another prefix."
            )

    def _send(self, file: PushedFile, sums: Sums, done_bytes: int) -> None:
        if len(sums.parts) > 1:
            return self._send_parts(file, sums, done_bytes)
        with file.open() as stream, self._errors_in_words():
            content = stream.read()
            self._client.put_object(**self._object(file), Body=content, ContentMD5=_base64(_md5(content)))
            self._report.sent_bytes += len(content)

    def _send_parts(self, file: PushedFile, sums: Sums, done_bytes: int) -> None:
        with file.open() as stream, self._errors_in_words():
            upload_id = self._upload(file)
            there = self._parts(file, upload_id)
            for number, digest in enumerate(sums.parts, 1):
                content_bytes = min(sums.part_bytes, file.size_bytes - (number - 1) * sums.part_bytes)
                if there.get(number) != (content_bytes, digest):
                    stream.seek((number - 1) * sums.part_bytes)
                    self._send_part(file, upload_id, number, stream.read(content_bytes))
                self._report.at(done_bytes + (number - 1) * sums.part_bytes + content_bytes)
            parts = [
                {"PartNumber": number, "ETag": tag} for number, tag in self._tags(file, upload_id, len(sums.parts))
            ]
            self._client.complete_multipart_upload(
                **self._object(file), UploadId=upload_id, MultipartUpload={"Parts": parts}
            )

    def _send_part(self, file: PushedFile, upload_id: str, number: int, content: bytes) -> None:
        part = {"UploadId": upload_id, "PartNumber": number, "ContentMD5": _base64(_md5(content))}
        self._client.upload_part(**self._object(file), **part, Body=content)
        self._report.sent_bytes += len(content)

    def _upload(self, file: PushedFile) -> str:
        """Return the id of the file's upload, which an earlier push may have begun."""
        key = self._key(file.name)
        listing = self._client.list_multipart_uploads(Bucket=self._target.place, Prefix=key)
        for upload in listing.get("Uploads", ()):
            if upload["Key"] == key:
                return str(upload["UploadId"])
        return str(self._client.create_multipart_upload(**self._object(file))["UploadId"])

    def _parts(self, file: PushedFile, upload_id: str) -> dict[int, tuple[int, str]]:
        """Return the sizes and tags of the parts that are there; a tag is the MD5, but of encrypted parts."""
        pages = self._client.get_paginator("list_parts").paginate(**self._object(file), UploadId=upload_id)
        parts = (part for page in pages for part in page.get("Parts", ()))
        return {int(part["PartNumber"]): (int(part["Size"]), _tag(part)) for part in parts}

    def _tags(self, file: PushedFile, upload_id: str, count: int) -> list[tuple[int, str]]:
        parts = self._parts(file, upload_id)
        return [(number, f'"{parts[number][1]}"') for number in range(1, count + 1)]

    def _is_there(self, file: PushedFile, sums: Sums) -> bool:
        head = self._head(file)
        return head is not None and (int(head["ContentLength"]), _tag(head)) == (file.size_bytes, sums.tag)

    def _check(self, files: list[PushedFile], sums: Mapping[str, Sums]) -> None:
        """Compare size and sum of all that is there now. Raises PushFailed."""
        for file in files:
            self._report.doing(f"checks {file.name}")
            head = self._head(file)
            if head is None or int(head["ContentLength"]) != file.size_bytes or _differs(head, sums[file.name]):
                raise PushFailed(f"{self._target}: {file.name} differs from what was sent; push again to send it anew.")

    def _head(self, file: PushedFile) -> dict[str, Any] | None:
        with self._errors_in_words():
            try:
                return dict(self._client.head_object(**self._object(file)))
            except self._client.exceptions.ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                    return None
                raise

    def _object(self, file: PushedFile) -> dict[str, str]:
        return {"Bucket": self._target.place, "Key": self._key(file.name)}

    def _key(self, name: str) -> str:
        return f"{self._target.path}/{name}" if self._target.path else name

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        """Convert the client's errors to PushRefused and Cut."""
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

        try:
            yield
        except ParamValidationError as error:
            raise PushRefused(f"{self._target} cannot be used: {error}") from error
        except ClientError as error:
            raise _refusal(self._target, error.response) from error
        except BotoCoreError as error:
            raise Cut(f"{self._target} cannot be reached ({type(error).__name__})") from error


PART_BYTES = 16 * 1024**2
MOST_PARTS = 10_000
ATTEMPTS = 3
"""Of a request, a second or two apart; then the whole push waits longer."""
LONGEST_CARD_BYTES = 1024**2
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 10.0, 60.0


@dataclass(frozen=True)
class Sums:
    """The MD5 of each part of a file, which a bucket names in its tags."""

    part_bytes: int
    parts: list[str]

    @property
    def tag(self) -> str:
        """The tag of the whole object."""
        if len(self.parts) == 1:
            return self.parts[0]
        joined = b"".join(map(bytes.fromhex, self.parts))
        return f"{_md5(joined).hex()}-{len(self.parts)}"


def _sums(file: PushedFile) -> Sums:
    size_bytes = file.size_bytes
    part_bytes = max(PART_BYTES, -(-size_bytes // MOST_PARTS))
    with file.open() as stream:
        pieces = iter(lambda: stream.read(part_bytes), b"")
        return Sums(part_bytes, [_md5(piece).hex() for piece in pieces] or [_md5(b"").hex()])


def _differs(head: Mapping[str, Any], sums: Sums) -> bool:
    """Whether an object has other bytes; the tag of one that a key service encrypts says nothing."""
    is_encrypted = str(head.get("ServerSideEncryption", "")).startswith("aws:kms")
    return not is_encrypted and _tag(head) != sums.tag


def _tag(answer: Mapping[str, Any]) -> str:
    return str(answer["ETag"]).strip('"')


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _connected(secrets: Mapping[str, str]) -> Any:
    try:
        from botocore.config import Config
        from botocore.session import get_session
    except ImportError:
        raise PushRefused(
            "This node's worker has no botocore, which buckets need: pip install 'rankzero[s3]' there."
        ) from None
    session = get_session()
    config = Config(
        signature_version="s3v4",
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        request_checksum_calculation="when_required",  # other servers than Amazon's support no others
        response_checksum_validation="when_required",
    )
    return session.create_client(
        "s3",
        region_name=session.get_config_variable("region") or "us-east-1",
        config=config,
        aws_access_key_id=secrets["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=secrets["AWS_SECRET_ACCESS_KEY"],
        aws_session_token=secrets.get("AWS_SESSION_TOKEN"),
    )


def _refusal(target: PushTarget, response: Mapping[str, Any]) -> Exception:
    details, status = response.get("Error", {}), response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(details.get("Code", "")) or str(status)
    if status >= 500 or code in ("SlowDown", "RequestTimeout", "NoSuchUpload"):
        return Cut(f"{target} answered {code}")
    if code == "NoSuchBucket":
        return PushRefused(f"The bucket {target.place} does not exist; create it, or name another.")
    if status == 403:
        return PushRefused(f"The bucket {target.place} denies access ({code}): check the secrets and what they may do.")
    return PushRefused(f"{target} answered {code}: {str(details.get('Message', '')).rstrip('.')}.")
