"""The loggers that are read as the script calls them: one module for each, with `HOOK_INTO`, module -> hook."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import aim, clearml, comet, lightning, mlflow, records, swanlab, trackio, wandb

LOGGERS = (wandb, mlflow, trackio, swanlab, comet, aim, clearml, lightning)


def _noted(hook: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the hook, which also notes that a logger is there."""

    @functools.wraps(hook)
    def noted(module: Any) -> None:
        records.is_needed = True
        hook(module)

    return noted


HOOK_INTO = {name: _noted(hook) for logger in LOGGERS for name, hook in logger.HOOK_INTO.items()}
