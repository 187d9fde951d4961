"""Hyperparameters, tags and modes of the loggers that a run's script calls, as the probe wrote them down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from dashboard.service.service import Service
from db.attempts import attempt_queries


def logged_settings(service: Service, run_id: str, attempt: int) -> Settings:
    """Return the latest settings of each logger in one attempt."""
    merged: Settings = {}
    for file in attempt_queries.files(service.store, run_id, attempt):
        if _FILE.fullmatch(file.path):
            data = service.files.read(file.id, max(0, file.size_bytes - MOST_BYTES), MOST_BYTES)
            merge(merged, data.splitlines())
    return merged


MOST_BYTES = 4 * 1024 * 1024
"""Read of the end of a file that grew with every step."""
_FILE = re.compile(r"probe/loggers/settings-\d+\.jsonl")
Settings = dict[str, dict[str, Any]]
"""Logger -> its settings: `config`, `tags`, `mode` and the like."""


def merge(merged: Settings, lines: Iterable[bytes]) -> None:
    """Add the settings of each line that holds some; a later value replaces an earlier one."""
    for line in lines:
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("settings"), dict):
                merged.setdefault(str(record.get("logger")), {}).update(record["settings"])


def flat(config: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return the (name, value) of each hyperparameter; nested names are joined by a dot."""
    if not isinstance(config, dict):
        return [(prefix.removesuffix("."), str(config))] if prefix else []
    return [pair for name, value in config.items() for pair in flat(value, f"{prefix}{name}.")]
