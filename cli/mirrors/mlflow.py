"""Copy what a run logged into MLflow, from where the last copy ended: MLflow itself holds how many points it has."""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from cli.mirrors.copying import Curves, Mirrored, ReceiverAway, curves, hyperparameters
from cli.server.client import ServerClient
from cli.server.following import is_complete
from cli.server.options import run_path
from cli.terminal import CommandFailed

CONNECT_S, ANSWER_S = 10.0, 60.0
MAX_PARAMS = 100
"""Of one request, as MLflow limits it."""
MISSING = "RESOURCE_DOES_NOT_EXIST"
Metric = Mapping[str, Any]
"""`key`, `value`, `timestamp` in ms, `step`."""


class Mlflow:
    """A tracking server; its credentials are those that MLflow's own client takes from the environment."""

    def __init__(self, url: str) -> None:
        """Raises CommandFailed for an address that is none."""
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise CommandFailed(f"--to must begin with http:// or https://, got {url!r}.", 2)
        if urlsplit(url).password:
            raise CommandFailed("--to must hold no password: set MLFLOW_TRACKING_PASSWORD instead.", 2)
        self.url = url.rstrip("/")
        token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            auth=(user, os.environ.get("MLFLOW_TRACKING_PASSWORD", "")) if user else None,
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
        )

    def experiment(self, name: str) -> str:
        """Return the id of an experiment, which is created if there is none. Raises CommandFailed."""
        try:
            answer = self._ask("GET", "experiments/get-by-name", params={"experiment_name": name})
            return str(answer["experiment"]["experiment_id"])
        except _Missing:
            return str(self._ask("POST", "experiments/create", json={"name": name})["experiment_id"])

    def find_run(self, experiment: str, tag: str, value: str) -> str | None:
        """Return the id of the first run with a tag, None if there is none. Raises CommandFailed."""
        search = {"experiment_ids": [experiment], "filter": f"tags.`{tag}` = '{value}'", "max_results": 1}
        runs = self._ask("POST", "runs/search", json=search).get("runs") or [None]
        return str(runs[0]["info"]["run_id"]) if runs[0] else None

    def create_run(self, experiment: str, name: str, started_at: float, tags: Mapping[str, str]) -> str:
        """Create a run; `started_at` is in seconds since the epoch. Raises CommandFailed."""
        described = {
            "experiment_id": experiment, "run_name": name, "start_time": int(started_at * 1000), "tags": _pairs(tags),
        }  # fmt: skip
        return str(self._ask("POST", "runs/create", json=described)["run"]["info"]["run_id"])

    def log(
        self, run: str, metrics: Sequence[Metric] = (), tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Log metrics and at most 100 tags, together 1000, in one request, parameters in as many as it takes.

        Raises CommandFailed."""
        batch = {"run_id": run, "metrics": list(metrics), "tags": _pairs(tags or {})}
        self._ask("POST", "runs/log-batch", json=batch)
        pairs = _pairs(params or {})
        for start in range(0, len(pairs), MAX_PARAMS):
            some = pairs[start : start + MAX_PARAMS]
            self._ask("POST", "runs/log-batch", json={"run_id": run, "params": some})

    def tags(self, run: str) -> dict[str, str]:
        """Return the tags of a run. Raises CommandFailed."""
        data = self._ask("GET", "runs/get", params={"run_id": run})["run"].get("data", {})
        return {str(tag["key"]): str(tag["value"]) for tag in data.get("tags", [])}

    def end(self, run: str, status: str, ended_at: float) -> None:
        """Set the end of a run; `status` is FINISHED, FAILED or KILLED. Raises CommandFailed."""
        end = {"run_id": run, "status": status, "end_time": int(ended_at * 1000)}
        self._ask("POST", "runs/update", json=end)

    def _ask(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """Return the answer's document. Raises _Missing, ReceiverAway, CommandFailed."""
        try:
            answer = self._http.request(method, f"{self.url}/api/2.0/mlflow/{path}", **request)
        except httpx2.HTTPError as error:
            raise ReceiverAway(f"{self.url} did not answer ({type(error).__name__}).") from None
        try:
            document = answer.json() if answer.content else {}
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ReceiverAway(f"{self.url} is not MLflow: its answer {answer.status_code} is no JSON object.")
        if answer.status_code == 200:
            return document
        if document.get("error_code") == MISSING:
            raise _Missing(path)
        message = f"{self.url} answered {answer.status_code} to {path}: {str(document.get('message'))[:300]}"
        raise (ReceiverAway if answer.status_code >= 500 or answer.status_code == 429 else CommandFailed)(message)


class _Missing(CommandFailed):
    """What was asked for does not exist."""


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


# Copy what a run logged into MLflow, from where the last copy ended: MLflow itself holds how many points it has.

RUN_TAG = "rankzero.run_id"
SENT = "rankzero.sent"
MAX_METRICS, MAX_SERIES = 900, 50
"""Of one request; MLflow takes 1000 metrics, parameters and tags together, and 100 tags."""
MAX_VALUE = 500
"""Characters of a parameter, as older servers of MLflow limit them."""
STATUS = {"succeeded": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


def mirror(target: Mlflow, server: ServerClient, run_id: str, experiment: str | None) -> Mirrored:
    """Copy the points that the copy lacks; the end too, once the run has one. Raises CommandFailed."""
    run = server.get(run_path(run_id))
    experiment_id = target.experiment(experiment or run["project"])
    copy = target.find_run(experiment_id, RUN_TAG, run_id) or _create(server, target, run, experiment_id)
    sent = sum(_send_attempt(server, target, run_id, number, copy) for number in range(1, (run["attempt"] or 0) + 1))
    is_ended = is_complete(run)
    if is_ended:
        target.end(copy, STATUS[run["state"]], run["ended_at"] or time.time())
    return Mirrored(run_id, f"{target.url}/#/experiments/{experiment_id}/runs/{copy}", sent, is_ended)


def _create(server: ServerClient, target: Mlflow, run: Mapping[str, Any], experiment: str) -> str:
    """Create the copy, with the hyperparameters that the script told its loggers and those of the launch."""
    began_at = run["started_at"] or run["created_at"]
    copy = target.create_run(experiment, run["name"], began_at, {RUN_TAG: run["id"]})
    params = hyperparameters(server, run)
    target.log(copy, params={_name(key)[:250]: str(value)[:MAX_VALUE] for key, value in params.items()})
    return copy


def _send_attempt(server: ServerClient, target: Mlflow, run_id: str, attempt: int, copy: str) -> int:
    """Send what the copy lacks of one attempt; return the number of points."""
    logged = curves(server, run_id, attempt)
    tags, sent = target.tags(copy), 0
    have = {name: _count(tags.get(_tag(attempt, name))) for name in logged}
    for batch in _batches(logged, have):
        metrics = [metric for name, points in batch.items() for metric in _metrics(name, points)]
        have |= {name: have[name] + len(points) for name, points in batch.items()}
        target.log(copy, metrics, {_tag(attempt, name): str(have[name]) for name in batch})
        sent += len(metrics)
    if sent and any(_count(target.tags(copy).get(_tag(attempt, name))) < have[name] for name in logged):
        raise ReceiverAway(f"{target.url} accepted points of run {run_id} but does not have them.")
    return sent


def _batches(logged: Curves, have: Mapping[str, int]) -> Iterator[dict[str, Sequence[Sequence[Any]]]]:
    """Yield the points behind those that the copy has, so many at a time as one request takes."""
    batch: dict[str, Sequence[Sequence[Any]]] = {}
    for name, points in logged.items():
        start = have[name]
        while start < len(points):
            free = MAX_METRICS - sum(map(len, batch.values()))
            batch[name] = points[start : start + free]
            start += free
            if len(batch[name]) == free or len(batch) == MAX_SERIES:
                yield batch
                batch = {}
    if batch:
        yield batch


def _metrics(name: str, points: Sequence[Sequence[Any]]) -> Iterator[Metric]:
    for step, value, wall in points:
        yield {"key": _name(name), "value": value, "timestamp": int(wall * 1000), "step": step}


def _name(text: str) -> str:
    """A name that MLflow accepts: of special characters only some."""
    return re.sub(r"[^\w.\-/ ]", "_", text, flags=re.ASCII)


def _tag(attempt: int, name: str) -> str:
    return f"{SENT}/{attempt}/{zlib.crc32(name.encode()):08x}"


def _count(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
