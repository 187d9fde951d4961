"""The table of importers: one more format is one more module here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from cli.importers.past_run import LeftOut, PastRun

IMPORTERS = {
    "tensorboard": "cli.importers.tensorboard",
    "wandb": "cli.importers.wandb",
    "mlflow": "cli.importers.mlflow",
    "trackio": "cli.importers.trackio",
    "neptune": "cli.importers.neptune",
}
"""Format -> the module whose `past_runs(root)` yields the runs below a path."""


def past_runs(root: Path, left_out: LeftOut) -> Iterator[tuple[str, PastRun]]:
    """Yield the format and the run of everything below a path that an importer reads; the rest is noted."""
    for format_name, module in IMPORTERS.items():
        for run in left_out.guarded(root, import_module(module).past_runs(root, left_out)):
            yield format_name, run
