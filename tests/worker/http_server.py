"""The server in memory behind a real socket, for tests that start the worker as a program."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from domain.messages import Bundle, CheckpointOffer, Findings, TaskReport
from domain.points import PackedBatch
from domain.protocol import PROTOCOL
from tests.worker.fake_server import FakeServer
from worker.session.client import TaskRef
from worker.session.failures import AttemptSuperseded, ChecksumMismatch, Ended, ServerAway, Unauthorized
from worker.streams.mirror import OffsetMismatch


class HttpServer:
    """Serves a FakeServer's rules, and the wishes a test sets."""

    def __init__(self) -> None:
        self.store = FakeServer()
        self.lock = threading.Lock()
        self.assignments: list = []
        self.checks: list = []
        self.answered: dict[int, dict] = {}
        """The answers to preflights."""
        self.bearers: dict[str, set[str]] = {}
        """The tokens with which each attempt, by its fencing token, was spoken of."""
        self.watched = False
        self.registered: list[dict] = []
        """What each worker said that registered; one that had to wait for its answer says it again."""
        self.refuses_nodes = self.has_removed_node = False
        self.knows_nodes = True
        """False as after a store of yesterday was put back."""
        self.protocol: int | None = PROTOCOL
        """None: as dashboards that name none."""
        self.loads = 0
        self.last_load: dict = {}
        self.is_behind_s = 0.0
        self.batches: defaultdict[str, list[list[int]]] = defaultdict(list)
        """The steps of each batch of points, by series."""
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def desired(self, version: str, wait_s: float) -> dict:
        """Answers when the list differs from the version, or the time is up."""
        deadline = time.monotonic() + min(wait_s, 2.0)
        while True:
            content = {"watched": self.watched, "assignments": [as_json(one) for one in self.assignments]}
            content["checks"] = [check.model_dump() for check in self.checks]
            current = json.dumps(content, sort_keys=True)
            if current != version or time.monotonic() > deadline:
                return {"version": current, **content}
            time.sleep(0.01)


def as_json(assignment) -> dict:
    """An assignment as it is sent; what a test has as JSON already is sent as it is."""
    return assignment if isinstance(assignment, dict) else assignment.model_dump()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of: HttpServer

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_GET

    def log_message(self, *_) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        try:
            status, answer = 200, self._answer(url.path, query, body)
        except OffsetMismatch as mismatch:
            status, answer = 416, {"offset": mismatch.have}
        except AttemptSuperseded as error:
            status, answer = 409, {"detail": {"field": None, "message": str(error)}}
        except ChecksumMismatch as error:
            status, answer = 422, {"detail": {"field": None, "message": str(error)}}
        except Unauthorized as error:
            status, answer = 401, {"detail": {"field": None, "message": str(error)}}
        except Ended as error:
            status, answer = 410, {"detail": {"field": "node", "message": str(error)}}
        except ServerAway:
            self.close_connection = True
            return
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # a worker that was killed
            self.wfile.write(content)

    def _answer(self, path: str, query: dict, body: bytes) -> dict:
        server = self.server_of
        bearer = self.headers["authorization"].removeprefix("Bearer ")
        if server.has_removed_node:
            raise Ended("Node gpu-3 was removed.")
        if path == "/api/worker/desired":
            if bearer != "node-token":
                raise Unauthorized("unknown node")
            return server.desired(query.get("version", ""), float(query["wait"]))
        with server.lock:
            if path == "/api/worker/register":
                if server.refuses_nodes:
                    raise AttemptSuperseded("the name is taken")
                if bearer != "join-token" and not (bearer == "node-token" and server.knows_nodes):
                    raise Unauthorized("This join token expired.")
                facts = json.loads(body) | {"bearer": bearer}
                if facts["instance_id"] not in {one["instance_id"] for one in server.registered}:
                    server.registered.append(facts)
                named = {} if server.protocol is None else {"protocol": server.protocol}
                return {"node_id": "n1", "token": "node-token", "heartbeat_s": 0.5, "poll_wait_s": 2} | named
            if path == "/api/worker/load":
                server.loads += 1
                server.last_load = json.loads(body)
                return {"node_id": "n1"}
            if match := re.fullmatch(r"/api/worker/checks/(\d+)", path):
                server.answered[int(match[1])] = json.loads(body)
                return {"check_id": int(match[1])}
            if path == "/api/worker/time":
                return {"now": time.time() - server.is_behind_s}
            if path == "/api/worker/pieces":
                bundle = Bundle.of_body(body)
                for head in bundle.heads:
                    server.bearers.setdefault(str(head.fence), set()).add(bearer)
                return self._take(bundle)
            if match := re.match(r"/api/worker/attempts/(\d+)/", path):
                server.bearers.setdefault(match[1], set()).add(bearer)
            return self._of_part(path, query, body)

    def _take(self, bundle: Bundle) -> dict:
        server = self.server_of
        for head, content in zip(bundle.heads, bundle.contents, strict=True):
            for name, points in ({} if head.path else PackedBatch.of_body(content).series).items():
                server.batches[name].append([point[0] for point in points])
        answers = server.store.bundle(bundle.heads, bundle.contents)
        return {"answers": [answer.model_dump() for answer in answers]}

    def _of_part(self, path: str, query: dict, body: bytes) -> dict:
        store = self.server_of.store
        if match := re.fullmatch(r"/api/worker/checkpoints/(\d+)/(data|complete)", path):
            if match[2] == "data":
                return {"offset": store.send_checkpoint(int(match[1]), int(query["offset"]), body)}
            sha256 = store.checkpoints[int(match[1])]["sha256"]
            store.complete_checkpoint(int(match[1]), sha256, json.loads(body)["adopted"])
            return {"checkpoint_id": int(match[1]), "sha256": sha256, "complete": True}
        fence, rank, what = re.fullmatch(r"/api/worker/attempts/(\d+)/tasks/(\d+)/(\w+)", path).groups()  # type: ignore[union-attr]
        task = TaskRef(int(fence), int(rank))
        if what == "report":
            return task.identity | {"state": store.report(task, TaskReport.model_validate_json(body))}
        if what == "findings":
            store.findings(task, Findings.model_validate_json(body))
            return task.identity
        if what == "checkpoints":
            return store.offer_checkpoint(task, CheckpointOffer.model_validate_json(body)).model_dump()
        return store.file_offsets(task, query["path"], int(query["generation"])).model_dump()
