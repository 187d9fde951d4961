"""A loopback receiver that speaks MLflow's REST API as documented, and can be away, slow to answer or lying."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.cli.mirrors.loopback import QuietHandler
from tests.end_to_end.product import free_port


class Receiver:
    """What arrived, and how the next requests are answered."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.batches = 0
        self.mode = "honest"
        """honest, away (503), refuses (403), loses answers (of every second batch of points), lies (accepts points
        and drops them), nonsense."""
        self.answers_after_s = 0.0
        """How long a batch that is stored already waits for its answer."""
        self.port = free_port()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Its address, also while it is away."""
        return f"http://127.0.0.1:{self.port}"

    def come(self) -> None:
        """Listen, always on the same port."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the status and document for a request."""
        if self.mode == "away":
            return 503, {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "later"}
        if self.mode == "refuses":
            return 403, {"error_code": "PERMISSION_DENIED", "message": "not you"}
        if self.mode == "nonsense":
            return 200, "<html>"
        kind, verb = path.split("/")[-2:]
        return getattr(self, f"_{kind}_{verb.replace('-', '_')}")(body)

    def points(self, run: str) -> dict[str, list[tuple[int, Any, int]]]:
        """Series -> [(step, value, time in ms)]."""
        series: dict[str, list[tuple[int, Any, int]]] = {}
        for metric in self.runs[run]["metrics"]:
            point = (metric["step"], metric["value"], metric["timestamp"])
            series.setdefault(metric["key"], []).append(point)
        return series

    def _experiments_get_by_name(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = body["experiment_name"]
        if name not in self.experiments:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": name}
        return 200, {"experiment": {"experiment_id": self.experiments[name]}}

    def _experiments_create(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.experiments[body["name"]] = str(len(self.experiments))
        return 200, {"experiment_id": self.experiments[body["name"]]}

    def _runs_search(self, body: dict[str, Any]) -> tuple[int, Any]:
        wanted = body["filter"].split("'")[1]
        runs = [run for run in self.runs.values() if run["tags"].get("rankzero.run_id") == wanted]
        return 200, {"runs": [{"info": {"run_id": run["id"]}} for run in runs]}

    def _runs_create(self, body: dict[str, Any]) -> tuple[int, Any]:
        run_id = f"run{len(self.runs)}"
        tags = {tag["key"]: tag["value"] for tag in body["tags"]}
        self.runs[run_id] = {**body, "id": run_id, "tags": tags, "metrics": [], "params": {}}
        return 200, {"run": {"info": {"run_id": run_id}}}

    def _runs_get(self, body: dict[str, Any]) -> tuple[int, Any]:
        tags = [{"key": key, "value": value} for key, value in self.runs[body["run_id"]]["tags"].items()]
        return 200, {"run": {"data": {"tags": tags}}}

    def _runs_log_batch(self, body: dict[str, Any]) -> tuple[int, Any]:
        metrics, tags, params = (body.get(kind, []) for kind in ("metrics", "tags", "params"))
        if len(metrics + tags + params) > 1000 or len(tags) > 100 or len(params) > 100:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "too many"}
        if self.mode != "lies":
            run = self.runs[body["run_id"]]
            run["metrics"] += metrics
            run["tags"] |= {tag["key"]: tag["value"] for tag in tags}
            run["params"] |= {param["key"]: param["value"] for param in params}
        if metrics:
            self.batches += 1
            time.sleep(self.answers_after_s)
        is_lost = self.mode == "loses answers" and metrics and self.batches % 2
        return (0, None) if is_lost else (200, {})

    def _runs_update(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.runs[body["run_id"]] |= {"status": body["status"]}
        return 200, {}


def _handler(receiver: Receiver) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            self._answer(url.path, {key: values[0] for key, values in parse_qs(url.query).items()})

        def do_POST(self) -> None:
            self._answer(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, path: str, body: dict[str, Any]) -> None:
            status, document = receiver.answer(path, body)
            if not status:
                self.close_connection = True
                return
            self.reply(status, (document if isinstance(document, str) else json.dumps(document)).encode())

    return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Yield a receiver that listens on a free port of the loopback."""
    receiver = Receiver()
    receiver.come()
    try:
        yield receiver
    finally:
        receiver.leave()
