"""Reads and writes the state files of an attempt, which the next worker on this data continues from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domain.messages import TERMINAL_STATES, TaskReport
from domain.text.json_values import parse_json
from worker.node.regular_files import bytes_of, open_emptied

REPORTED_FILE = "worker/reported.json"
"""Holds the last state that the server acknowledged, and after the end whether something is still to be sent, or
everything was."""
END_FILE = "worker/end.json"
"""Holds the end of an attempt whose supervisor could not record it."""
SUPERSEDED = "superseded"
SETTLED = TERMINAL_STATES | {SUPERSEDED}


def is_settled(folder: Path) -> bool:
    """Whether the server has acknowledged the end of the attempt in this directory, and nothing is left to be sent."""
    reported = read_object(folder / REPORTED_FILE)
    return reported.get("state") in SETTLED and not reported.get("is_sending")


def has_sent_all(reported: Mapping[str, Any]) -> bool:
    """Whether the server has the end and all data of the attempt with this record: nothing is on this node only."""
    return bool(reported.get("state") in TERMINAL_STATES and reported.get("has_all") and not reported.get("is_sending"))


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically and durably, readable by this user only. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_emptied(temporary) as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if the file is missing or unreadable."""
    try:
        document = parse_json(bytes_of(path))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def read_report(path: Path) -> TaskReport | None:
    """Read a stored report; None if the file is missing or unreadable."""
    try:
        return TaskReport.model_validate_json(bytes_of(path))
    except (OSError, ValueError):
        return None
