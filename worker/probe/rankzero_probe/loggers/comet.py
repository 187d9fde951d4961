"""Comet: metrics, parameters and tags of online and offline experiments."""

from __future__ import annotations

from typing import Any

from . import records, values

NAME = "comet"

_params: dict[str, Any] = {}
_tags: list[str] = []


def hook_into_experiments(module: Any) -> None:
    """Observe the method that all metrics pass through, parameters and tags."""
    experiment = module.CometExperiment
    records.observe(experiment, "_log_metric", _logged)
    records.observe(experiment, "log_parameter", _logged_parameter)
    records.observe(experiment, "log_parameters", _logged_parameters)
    records.observe(experiment, "add_tag", _tagged)
    records.observe(experiment, "add_tags", _tagged)


def _logged(
    result: Any,
    experiment: Any,
    name: Any,
    value: Any,
    step: Any = None,
    epoch: Any = None,
    include_context: bool = True,
    *_: Any,
    **__: Any,
) -> None:
    context = f"{experiment.context}_" if include_context and experiment.context else ""
    if (number := values.number(value)) is not None:
        records.write_points(NAME, int(experiment.curr_step or 0), {f"{context}{name}": number})


def _logged_parameter(result: Any, experiment: Any, name: Any, value: Any, *_: Any, **__: Any) -> None:
    _params[str(name)] = values.plain(value)
    records.write_settings(NAME, config=_params)


def _logged_parameters(result: Any, experiment: Any, parameters: Any, *_: Any, **__: Any) -> None:
    _params.update(values.plain(parameters))
    records.write_settings(NAME, config=_params)


def _tagged(result: Any, experiment: Any, tags: Any) -> None:
    _tags.extend([tags] if isinstance(tags, str) else tags)
    records.write_settings(NAME, tags=_tags)


HOOK_INTO = {"comet_ml.experiment": hook_into_experiments}
