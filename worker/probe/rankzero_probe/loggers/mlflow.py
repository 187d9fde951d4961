"""MLflow: the client that its fluent API, `MlflowClient` and autologging all log through."""

from __future__ import annotations

from typing import Any

from . import records, values

NAME = "mlflow"
OWN_TAGS = "mlflow."
"""Begins the names of tags that MLflow sets itself."""

_params: dict[str, str] = {}
_tags: dict[str, str] = {}


def hook_into_client(module: Any) -> None:
    """Observe metrics, parameters and tags, one by one and in batches."""
    client = module.TrackingServiceClient
    records.prepare(client, "log_metric", _note_run)
    records.prepare(client, "log_batch", _note_run)
    records.observe(client, "log_metric", _logged_metric)
    records.observe(client, "log_param", _logged_param)
    records.observe(client, "set_tag", _set_tag)
    records.observe(client, "log_batch", _logged_batch)


def _note_run(client: Any, run_id: str, *_: Any, **__: Any) -> None:
    records.note_run(NAME, run_id)


def _logged_metric(
    result: Any,
    client: Any,
    run_id: str,
    key: str,
    value: Any,
    timestamp: Any = None,
    step: Any = None,
    *_: Any,
    **__: Any,
) -> None:
    if (number := values.number(value)) is not None:
        records.write_points(NAME, int(step or 0), {key: number})


def _logged_batch(
    result: Any,
    client: Any,
    run_id: str,
    metrics: Any = (),
    params: Any = (),
    tags: Any = (),
    *_: Any,
    **__: Any,
) -> None:
    by_step: dict[int, dict[str, float]] = {}
    for metric in metrics:
        number = values.number(metric.value)
        points = by_step.setdefault(metric.step or 0, {})
        if metric.key in points:  # several of one step, as MLflow keeps them
            records.write_points(NAME, metric.step or 0, {metric.key: points.pop(metric.key)})
        if number is not None:
            points[metric.key] = number
    for step, points in by_step.items():
        records.write_points(NAME, step, points)
    _params.update((param.key, str(param.value)) for param in params)
    _tags.update((tag.key, str(tag.value)) for tag in tags)
    if params or tags:
        _write()


def _logged_param(result: Any, client: Any, run_id: str, key: str, value: Any, *_: Any, **__: Any) -> None:
    _params[key] = str(value)
    _write()


def _set_tag(result: Any, client: Any, run_id: str, key: str, value: Any, *_: Any, **__: Any) -> None:
    _tags[key] = str(value)
    _write()


def _write() -> None:
    tags = [f"{key}={value}" for key, value in _tags.items() if not key.startswith(OWN_TAGS)]
    records.write_settings(NAME, config=values.plain(_params), tags=values.plain(tags))


HOOK_INTO = {"mlflow.tracking._tracking_service.client": hook_into_client}
