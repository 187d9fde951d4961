"""What a worker writes down about an attempt, so that the next worker on this data knows it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from domain.messages import TERMINAL_STATES, TaskReport

REPORTED_FILE = "worker/reported.json"
"""The last state the server has acknowledged."""
END_FILE = "worker/end.json"
"""The end of an attempt that no supervisor could write down."""
SUPERSEDED = "superseded"
SETTLED = TERMINAL_STATES | {SUPERSEDED}


def is_settled(folder: Path) -> bool:
    """Whether the server has acknowledged the end of the attempt in this directory."""
    return read_object(folder / REPORTED_FILE).get("state") in SETTLED


def write_whole(path: Path, text: str) -> None:
    """The new content or the old one, also when the power fails; readable for this user alone."""
    fresh = path.with_name(f".{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is none that can be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_report(path: Path) -> TaskReport | None:
    """A report that was kept; None when there is none that can be read."""
    try:
        return TaskReport.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
