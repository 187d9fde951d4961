"""A server of the tests' own that answers as a model hub does: repositories, large files by LFS, commits."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "hf_a-token-of-the-tests"


@dataclass
class Repository:
    """What is committed to one."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    large: set[str] = field(default_factory=set)
    """The names of files that are stored as large ones."""
    messages: list[str] = field(default_factory=list)

    @property
    def revision(self) -> str:
        return hashlib.sha1(str(len(self.messages)).encode()).hexdigest()


class HubServer:
    """What it holds survives a cut connection."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.large_bytes = 100
        """Files from this size on are large."""
        self.part_bytes: int | None = None
        """Large files come in parts of this size; None: whole."""
        self.received: Counter[str] = Counter()
        """Bytes of large files that arrived, by their SHA-256."""
        self.asked: Counter[str] = Counter()
        """Requests by method and kind."""
        self.statuses: dict[str, list[int]] = {}
        """Errors to answer next, by method and kind."""
        self.cuts = 0
        """So many uploads of a large file are cut off in their middle."""
        self.hold = ""
        """The SHA-256 of a large file whose upload waits in its middle for `go_on`, and is lost then."""
        self.held, self.go_on = threading.Event(), threading.Event()
        self._parts: dict[tuple[str, int], bytes] = {}
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def batch(self, repository: str, body: dict[str, Any]) -> dict[str, Any]:
        """Say how each large file is to be sent; nothing for those that are here."""
        return {"transfer": "basic", "objects": [self._action(repository, one) for one in body["objects"]]}

    def _action(self, repository: str, asked: dict[str, Any]) -> dict[str, Any]:
        oid, size = asked["oid"], asked["size"]
        if oid in self.objects:
            return {"oid": oid, "size": size}
        upload: dict[str, Any] = {"href": f"{self.url}/lfs/{oid}"}
        if self.part_bytes is not None:
            count = -(-size // self.part_bytes)
            parts = {str(number): f"{self.url}/lfs/{oid}?part={number}" for number in range(1, count + 1)}
            upload["header"] = {"chunk_size": str(self.part_bytes), **parts}
        return {"oid": oid, "size": size, "actions": {"upload": upload, "verify": {"href": f"{self.url}/verify"}}}

    def take(self, oid: str, part: int | None, content: bytes) -> None:
        """Take a large file, or a part of one."""
        if part is None:
            assert hashlib.sha256(content).hexdigest() == oid
            self.objects[oid] = content
        else:
            self._parts[oid, part] = content

    def complete(self, body: dict[str, Any]) -> None:
        """Join the parts of a large file."""
        oid = body["oid"]
        self.take(oid, None, b"".join(self._parts.pop((oid, part["partNumber"])) for part in body["parts"]))

    def commit(self, repository: Repository, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                repository.messages.append(value["summary"])
            elif line["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
                repository.large.discard(value["path"])
            elif line["key"] == "lfsFile":
                repository.files[value["path"]] = self.objects[value["oid"]]
                repository.large.add(value["path"])
            elif line["key"] == "deletedFile":
                del repository.files[value["path"]]

    def oid(self, repository: Repository, name: str) -> str:
        content = repository.files[name]
        if name in repository.large:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            if (repository := self._repository(match[1], "file")) is None:
                return
            content = repository.files[match[2]]
            tag = {"ETag": f'"{self.hub.oid(repository, match[2])}"', "X-Repo-Commit": repository.revision}
            return self._send(200, content, tag)
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?", path)
        if match and (repository := self._repository(match[1], "info")) is not None:
            siblings = [{"rfilename": name} for name in repository.files]
            info = {"id": match[1], "private": repository.private, "sha": repository.revision, "siblings": siblings}
            self._answer(info)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        address = urlsplit(self.path)
        oid, part = address.path.rpartition("/")[2], parse_qs(address.query).get("part")
        if self._is_refused("upload"):
            return
        left = int(self.headers["Content-Length"])
        pieces = []
        while left:
            piece = self.rfile.read(min(left, 4096))
            if not piece:
                return
            pieces.append(piece)
            left -= len(piece)
            self.hub.received[oid] += len(piece)
            if self.hub.cuts and left:
                self.hub.cuts -= 1
                self.close_connection = True
                return
            if oid == self.hub.hold:
                self.hub.held.set()
                self.hub.go_on.wait()
                self.close_connection = True
                return
        self.hub.take(oid, int(part[0]) if part else None, b"".join(pieces))
        self._send(200, b"", {"ETag": '"a-tag"'})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        if path == "/verify":
            return self._answer({})
        if path.startswith("/lfs/"):
            self.hub.complete(json.loads(body))
            return self._answer({})
        if match := re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            if self._repository(match[1], "batch") is not None:
                self._answer(self.hub.batch(match[1], json.loads(body)))
            return None
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit|paths-info)/([^/]+)", path)
        assert match is not None, path
        if (repository := self._repository(match[1], match[2])) is None:
            return None
        return getattr(self, f"_{match[2].replace('-', '_')}")(repository, body)

    def _create(self, asked: dict[str, Any]) -> None:
        if self._is_refused("create") or not self._is_authorized():
            return
        name = f"{asked['organization']}/{asked['name']}"
        self.hub.repositories.setdefault(name, Repository(asked.get("visibility") == "private"))
        self._answer({"url": f"{self.hub.url}/{name}"})

    def _preupload(self, repository: Repository, body: bytes) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["size"] >= self.hub.large_bytes else "regular",
                "shouldIgnore": False,
                "oid": self.hub.oid(repository, file["path"]) if file["path"] in repository.files else None,
            }
            for file in json.loads(body)["files"]
        ]
        self._answer({"files": files})

    def _commit(self, repository: Repository, body: bytes) -> None:
        self.hub.commit(repository, [json.loads(line) for line in body.splitlines()])
        place = self.path.partition("/commit/")[0].removeprefix("/api/models")
        url = f"{self.hub.url}{place}/commit/{repository.revision}"
        self._answer({"commitUrl": url, "commitOid": repository.revision})

    def _paths_info(self, repository: Repository, body: bytes) -> None:
        names = parse_qs(body.decode()).get("paths", [])
        self._answer([self._entry(repository, name) for name in names if name in repository.files])

    def _entry(self, repository: Repository, name: str) -> dict[str, Any]:
        size, oid = len(repository.files[name]), self.hub.oid(repository, name)
        entry = {"type": "file", "path": name, "size": size, "oid": oid}
        return entry | ({"lfs": {"oid": oid, "size": size, "pointerSize": 130}} if name in repository.large else {})

    def _repository(self, name: str, kind: str) -> Repository | None:
        """Return a repository, or None once an error is answered."""
        if self._is_refused(kind) or not self._is_authorized():
            return None
        if (repository := self.hub.repositories.get(name)) is None:
            self._send(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        return repository

    def _is_refused(self, kind: str) -> bool:
        asked = f"{self.command} {kind}"
        self.hub.asked[asked] += 1
        if not self.hub.statuses.get(asked):
            return False
        self._send(self.hub.statuses[asked].pop(0), b'{"error": "so it is"}')
        return True

    def _is_authorized(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self._send(401, b'{"error": "Invalid credentials in Authorization header"}')
        return False

    def _answer(self, document: Any) -> None:
        self._send(200, json.dumps(document).encode())

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """A running server."""
    server = HubServer()
    try:
        yield server
    finally:
        server.close()
