"""A real S3 server of the tests' own (moto's), that can be away, be strict as Amazon's is, or answer with an error."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.session import get_session
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server
from werkzeug.wrappers import Response

from tests.end_to_end.product import free_port

Answer = tuple[str, bytes]


class S3Server:
    """moto's server; what it holds survives a stop."""

    def __init__(self) -> None:
        self.is_strict = False
        """Parts and objects must have the SHA-256 that is sent with them, and it is kept: moto does neither."""
        self.refuse: Callable[[str, str], Answer | None] = lambda method, path: None
        """(method, path and query) -> an answer instead of moto's."""
        self.asked: Counter[str] = Counter()
        """Requests by method and what they are about."""
        self._app = DomainDispatcherApplication(create_backend_app)
        self._sums: dict[tuple[str, str], str] = {}
        self._port = free_port()  # still its own when it starts again
        self._server: BaseWSGIServer | None = None
        self.start()

    def start(self) -> None:
        """Answer, at the same address as before."""
        handler = type("Quiet", (MotoRequestHandler,), {"log": lambda *_, **__: None})
        self._server = make_server("127.0.0.1", self._port, self._serve, True, request_handler=handler)
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def stop(self) -> None:
        """Be away."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """The AWS_* variables of who may use it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "an-id",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def bucket(self) -> Bucket:
        """A new one."""
        return Bucket(self, f"bucket-{secrets.token_hex(4)}")

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
        self.asked[f"{method} {'part' if 'partNumber' in query else 'other'}"] += 1
        refused = self.refuse(method, f"{environ['PATH_INFO']}?{query}")
        if refused is None and self.is_strict and method == "PUT":
            refused = self._wrong_sum(environ, query)
        if refused is not None:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(refused[0], [("Content-Type", "application/xml")])
            return [refused[1]]
        if self.is_strict and method == "GET" and "uploadId" in query:
            listing = Response.from_app(self._app, environ)
            listing.set_data(self._with_sums(listing.get_data(), query))
            return listing(environ, start_response)
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer

    def _wrong_sum(self, environ: dict[str, Any], query: str) -> Answer | None:
        said = environ.get("HTTP_X_AMZ_CHECKSUM_SHA256")
        if said is None:
            return None
        content = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(content)
        if base64.b64encode(hashlib.sha256(content).digest()).decode() != said:
            return error("400 Bad Request", "BadDigest")
        if number := re.search(r"partNumber=(\d+)", query):
            self._sums[re.search(r"uploadId=([^&]+)", query)[1], number[1]] = said  # type: ignore[index]
        return None

    def _with_sums(self, listing: bytes, query: str) -> bytes:
        upload = re.search(r"uploadId=([^&]+)", query)[1]  # type: ignore[index]

        def add(match: re.Match[str]) -> str:
            said = self._sums.get((upload, match[1]))
            return match[0] + (f"<ChecksumSHA256>{said}</ChecksumSHA256>" if said else "")

        return re.sub(r"<PartNumber>(\d+)</PartNumber>", add, listing.decode()).encode()


class Bucket:
    """What lies in one bucket."""

    def __init__(self, server: S3Server, name: str) -> None:
        self.server, self.name = server, name
        self.url = f"s3://{name}/runs"
        self.client = get_session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=server.url,
            aws_access_key_id="an-id",
            aws_secret_access_key="a-secret",
        )
        self.client.create_bucket(Bucket=name)

    @property
    def keys(self) -> list[str]:
        """The objects."""
        return [each["Key"] for each in self.client.list_objects_v2(Bucket=self.name).get("Contents", ())]

    @property
    def uploads(self) -> list[str]:
        """Objects that are on their way."""
        uploads_found = self.client.list_multipart_uploads(Bucket=self.name)
        return [each["Key"] for each in uploads_found.get("Uploads", ())]

    def content(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.name, Key=key)["Body"].read())

    def parts(self, key: str) -> list[int]:
        """The numbers of the parts that have come."""
        uploads = self.client.list_multipart_uploads(Bucket=self.name, Prefix=key).get("Uploads", ())
        uploads_found = [
            self.client.list_parts(Bucket=self.name, Key=key, UploadId=each["UploadId"]) for each in uploads
        ]
        return [part["PartNumber"] for listing in uploads_found for part in listing.get("Parts", ())]


def error(status: str, code: str) -> Answer:
    """An error as S3 tells it."""
    return status, f"<Error><Code>{code}</Code><Message>so it is</Message></Error>".encode()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A running server."""
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()
