"""Figures of a training without a logger: `rankzero.log`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, SupportsInt

from rankzero.output import say_once


def log(values: Mapping[str, Any], step: SupportsInt | str | None = None) -> None:
    """Log numbers of a step, by default of the one after the last; nested names are joined: `val/loss`.

    A number may also be an array or tensor with one element. Outside of a run, and of what is no number, one line on
    stderr says that nothing is recorded; this never raises."""
    try:
        if (write := _probes_log()) is None:
            say_once(_nowhere())
        elif skipped := write(values, step):
            say_once(f"log() records numbers only; skipped: {', '.join(skipped[:5])}")
    except Exception as error:
        say_once(f"log() could not record its values: {type(error).__name__}: {error}")


PROBE = "rankzero_probe"
"""The package of the probe, which every Python of a run loads when it starts."""


def _probes_log() -> Any | None:
    """Return the probe's function that writes figures; None where the probe does not observe this process."""
    if not os.environ.get("RANKZERO_PROBE_DIR") or PROBE not in sys.modules:
        return None
    return importlib.import_module(f"{PROBE}.loggers.own").log


def _nowhere() -> str:
    """Return why figures cannot be recorded."""
    if os.environ.get("RANKZERO_RUN_ID"):
        return "log() records nothing: the probe is not loaded in this Python (probe: false, python -I or -S)"
    return "log() records nothing outside of a run: begin one with rankzero.watch(), `rankzero watch` or `launch`"
