"""Lightning's CSVLogger; its other loggers call packages that are read themselves."""

from __future__ import annotations

from typing import Any

from . import records, values

NAME = "csv"


def hook_into_csv_logger(module: Any) -> None:
    """Observe the writer of the file, whose rows get the step that it chooses."""
    records.observe(module._ExperimentWriter, "log_metrics", _logged)


def hook_into_hyperparameters(module: Any) -> None:
    """Observe the hyperparameters of a run."""
    records.observe(module.ExperimentWriter, "log_hparams", _configured)


def _logged(result: Any, writer: Any, metrics_dict: Any, step: int | None = None) -> None:
    records.write_points(NAME, int(writer.metrics[-1]["step"]), dict(values.numbers(metrics_dict, "/")))


def _configured(result: Any, writer: Any, params: Any) -> None:
    records.write_settings(NAME, config=values.plain(writer.hparams))


HOOK_INTO = {
    "lightning.fabric.loggers.csv_logs": hook_into_csv_logger,
    "lightning.pytorch.loggers.csv_logs": hook_into_hyperparameters,
    "lightning_fabric.loggers.csv_logs": hook_into_csv_logger,
    "pytorch_lightning.loggers.csv_logs": hook_into_hyperparameters,
}
