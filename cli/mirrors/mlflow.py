"""MLflow's REST API, as far as a mirror needs it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from cli.mirrors.copying import ReceiverAway
from cli.terminal.errors import CommandFailed

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
