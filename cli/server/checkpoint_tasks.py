"""Ask for work on checkpoints, and follow it at the terminal until it has ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from cli.server.client import ServerClient, ServerUnreachable
from cli.server.following import PATIENCE_S, POLL_S, StatusLine
from cli.server.options import run_path
from cli.terminal import CommandFailed, warn
from domain.checkpoint_use.tasks import ENDED_STATES, progress_words


class FormatOption(StrEnum):
    """The forms of a merged checkpoint."""

    SAFETENSORS = "safetensors"
    HF = "hf"


FORMAT_HELP = "safetensors: one file; hf: shards and config, as from_pretrained loads them."


def merge(server: ServerClient, checkpoint: Mapping[str, Any], format: str) -> dict[str, Any]:
    """Have a node merge a checkpoint, unless it has; return the task. Raises CommandFailed."""
    return dict(server.post(f"/api/checkpoints/{checkpoint['id']}/merge", {"format": format}))


def followed(server: ServerClient, task: dict[str, Any]) -> dict[str, Any]:
    """Follow a task to its success and return it. Raises CommandFailed where it fails or is cancelled.

    The dashboard may be away meanwhile."""
    line, is_away = StatusLine(), False
    try:
        while task["state"] not in ENDED_STATES:
            line.show(progress_words(task["node"], task["doing"], task["done_bytes"], task["total_bytes"]))
            time.sleep(POLL_S)
            try:
                task, is_away = server.get(f"/api/checkpoint-tasks/{task['id']}"), False
            except ServerUnreachable as error:
                if not is_away:
                    warn(f"{error} Waiting for it.")
                is_away = True
                time.sleep(PATIENCE_S)
    except KeyboardInterrupt:
        raise CommandFailed(
            f"It continues on node {task['node']}; `rankzero checkpoint cancel {task['id']}` ends it.", 130
        ) from None
    finally:
        line.clear()
    if task["state"] != "succeeded":
        raise CommandFailed(task["message"] or f"Task {task['id']} was cancelled.")
    return task


def merged_checkpoint(server: ServerClient, run: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkpoint that a merge made. Raises CommandFailed where it was deleted meanwhile."""
    for entry in server.get(run_path(run, "checkpoints")):
        if entry["id"] == task["merged_id"]:
            return dict(entry)
    raise CommandFailed("The merged checkpoint was deleted meanwhile: merge it again.")
