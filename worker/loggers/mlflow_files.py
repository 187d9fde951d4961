"""A run in MLflow's file store: a folder of `metrics`, `params` and `tags`, one file each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from domain.messages import Point
from worker.node.run_files import walk_files

META = "meta.yaml"
"""In the folder of a run, and of an experiment."""
METRICS = "metrics"


def point(line: str) -> Point | None:
    """Return the point of a metric's line: time in ms, value and, in newer versions, step; None if it is none."""
    try:
        wall_ms, value, *step = line.split(" ")
        return int(step[0]) if step else 0, float(value), int(wall_ms) / 1000
    except (ValueError, OverflowError):
        return None


def read_meta(meta: Path) -> Mapping[str, Any]:
    """Return what a `meta.yaml` says; nothing if it cannot be read."""
    try:
        content = yaml.safe_load(meta.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def texts(folder: Path) -> dict[str, str]:
    """Return the content of each file by its name. Raises OSError."""
    return {str(file.relative_to(folder)): file.read_text(errors="replace") for file in files(folder)}


def files(folder: Path) -> list[Path]:
    """Return all files below a folder; the name of a metric may contain slashes."""
    return sorted(Path(entry.path) for entry in walk_files(folder, lambda name: True))
