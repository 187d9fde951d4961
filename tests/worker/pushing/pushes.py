"""A push in the test's own process, and what it printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.virtual_time import VirtualTime
from worker.pushing.__main__ import PushOrder, run

WEIGHTS = {"model-00001-of-00002.safetensors": b"a" * 3000, "model-00002-of-00002.safetensors": b"b" * 2000}
SMALL = {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {}}'}


def checkpoint(folder: Path, **more: bytes) -> Path:
    """A merged checkpoint of two files of weights."""
    source = folder / "checkpoint"
    for name, content in (WEIGHTS | SMALL | more).items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return source


def push(source: Path, target: str, secrets: dict[str, str], **more: Any) -> dict[str, Any]:
    """Push, and return what the program's last line says."""
    return printed(source, target, secrets, **more)[-1]


def printed(source: Path, target: str, secrets: dict[str, str], **more: Any) -> list[dict[str, Any]]:
    """Push, and return all lines."""
    asked = {"name": "model.safetensors", "message": "Add step 7", "secrets": secrets} | more
    lines: list[str] = []
    run(source, PushOrder.model_validate({"target": target, **asked}), lines.append, VirtualTime())
    return [json.loads(line) for line in lines]
