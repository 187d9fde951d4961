"""A loopback server that speaks as much of W&B's API as its package needs to upload and resume runs."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.cli.mirrors.loopback import QuietHandler

HISTORY, SUMMARY = "wandb-history.jsonl", "wandb-summary.json"
OWN = ("_step", "_timestamp", "_runtime")


class WandbServer:
    """The runs that arrived: their rows lie where the package's offsets say, as at W&B itself."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.mode = "honest"
        """honest, or away (503)."""
        self.answers_after_s = 0.0
        """How long rows that are stored already wait for their answer."""
        self.url = ""
        self.refused = 0
        """Requests that it was away for."""
        self.unknown: list[str] = []
        """Operations that it was asked for and does not know."""

    def rows(self, run: str) -> list[dict[str, Any]]:
        """The rows of a run in their order; a row that is missing is a failure."""
        lines = self.runs[run]["lines"] if run in self.runs else {}
        assert sorted(lines) == list(range(len(lines))), "rows are missing"
        return [json.loads(lines[number]) for number in range(len(lines))]

    def curves(self, run: str) -> dict[str, list[tuple[int, Any, float]]]:
        """Series -> [(step, value, wall time)], by the x-axis that the mirror defines."""
        kept_run: dict[str, list[tuple[int, Any, float]]] = {}
        for row in self.rows(run):
            for name in row.keys() - {*OWN, "step"}:
                kept_run.setdefault(name, []).append((row["step"], row[name], row["_timestamp"]))
        return kept_run

    def operate(self, name: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Answer one GraphQL operation."""
        match name:
            case "Viewer":
                return {
                    "viewer": {
                        "id": "v",
                        "entity": "team",
                        "username": "me",
                        "flags": "{}",
                        "teams": {"edges": []},
                    }
                }
            case "RunResumeStatus":
                kept_run = self.runs.get(variables["name"])
                return {"model": _project(variables) | {"bucket": kept_run and _resumed(kept_run)}}
            case "UpsertBucket":
                return {"upsertBucket": self._upsert(variables)}
            case "CreateRunFiles":
                files = [{"name": name, "uploadUrl": f"{self.url}/upload"} for name in variables["files"]]
                return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        self.unknown.append(name)
        return {}

    def stream(self, run: str, body: dict[str, Any]) -> dict[str, Any]:
        """Store rows at their offsets, and how the run ended."""
        kept_run = self.runs[run]
        if history := body.get("files", {}).get(HISTORY):
            kept_run["lines"] |= dict(enumerate(history["content"], history["offset"]))
        if summary := body.get("files", {}).get(SUMMARY):
            kept_run["summary"] = summary["content"][-1]
        if body.get("complete"):
            kept_run["exit_code"] = body.get("exitcode", body.get("exitCode"))
        time.sleep(self.answers_after_s if history else 0.0)
        return {}

    def _upsert(self, variables: dict[str, Any]) -> dict[str, Any]:
        is_new = variables["name"] not in self.runs
        kept_run = self.runs.setdefault(variables["name"], {"lines": {}, "summary": "{}", "config": "{}", "tags": []})
        kept_run |= {key: value for key, value in variables.items() if value is not None}
        kept_run["exit_code"] = None
        bucket = {
            "id": "r", "name": kept_run["name"], "displayName": kept_run.get("displayName"), "description": None,
            "config": kept_run["config"], "sweepName": None, "project": _project(variables),
            "historyLineCount": len(kept_run["lines"]),
        }  # fmt: skip
        return {"bucket": bucket, "inserted": is_new}


def _project(variables: dict[str, Any]) -> dict[str, Any]:
    return {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": variables["entity"]}}


def _resumed(run: dict[str, Any]) -> dict[str, Any]:
    last = [run["lines"][max(run["lines"])]] if run["lines"] else []
    return {
        "id": "r", "name": run["name"], "summaryMetrics": run["summary"], "displayName": run.get("displayName"),
        "logLineCount": 0, "historyLineCount": len(run["lines"]), "eventsLineCount": 0,
        "historyTail": json.dumps(last), "eventsTail": "[]", "config": run["config"], "tags": run["tags"],
        "notes": None, "wandbConfig": json.dumps(json.loads(run["config"]).get("_wandb", {}).get("value", {})),
    }  # fmt: skip


class _Listening(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed closes its connections."""


def _handler(server: WandbServer) -> type[QuietHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, {})

        def do_PUT(self) -> None:
            self._body()
            self._answer(200, {})

        def do_POST(self) -> None:
            body = self._body()
            if server.mode == "away":
                server.refused += 1
                self._answer(503, {})
            elif self.path == "/graphql":
                request = json.loads(body)
                name = re.search(r"(?:query|mutation)\s+(\w+)", request["query"])
                self._answer(200, {"data": server.operate(name[1] if name else "", request.get("variables") or {})})
            elif self.path.endswith("/file_stream"):
                self._answer(200, server.stream(self.path.split("/")[-2], json.loads(body)))
            else:
                self._answer(200, {})

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            self.reply(status, json.dumps(document).encode())

    return Handler


@contextmanager
def serving() -> Iterator[WandbServer]:
    """Yield a server that listens on a free port of the loopback."""
    known = WandbServer()
    listening = _Listening(("127.0.0.1", 0), _handler(known))
    known.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
