"""Copy what a run logged into MLflow, from where the last copy ended: MLflow itself holds how many points it has."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.mirrors.copying import Curves, Mirrored, ReceiverAway, curves, hyperparameters
from cli.mirrors.mlflow import Metric, Mlflow
from cli.server.client import ServerClient
from cli.server.options import run_path
from domain.messages import TERMINAL_STATES

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
    is_ended = run["state"] in TERMINAL_STATES
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
        raise ReceiverAway(f"{target.url} accepted points of run {run_id} and does not have them.")
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
