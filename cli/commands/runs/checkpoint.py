"""`rankzero checkpoint`: the commands on a single checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from cli.commands.runs import kept_checkpoints, tensors
from cli.commands.runs.checkpoint_push import push
from cli.commands.runs.checkpoints import choose
from cli.commands.runs.tensors import Name
from cli.server.checkpoint_tasks import FORMAT_HELP, FormatOption, followed, merge, merged_checkpoint
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal import print_json, print_outcome, say
from domain.text import formats

checkpoint_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@checkpoint_app.callback()
def checkpoint() -> None:
    """Merge, show, compare, push, pin, delete and restore single checkpoints."""


@checkpoint_app.command("merge")
def merge_checkpoint(
    run: RunId,
    name: Name = None,
    format: Annotated[FormatOption, typer.Option("--format", help=FORMAT_HELP)] = FormatOption.SAFETENSORS,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return before it is done.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Merge a checkpoint's shards into safetensors with plain names, on a node, proven against the shards."""
    server = server_at(data)
    checkpoint = choose(server.get(run_path(run, "checkpoints")), run, name)
    task = merge(server, checkpoint, format.value)
    if no_wait and task["state"] != "succeeded":
        said = f"Node {task['node']} merges {checkpoint['name']} (task {task['id']})."
        return print_outcome(_document(task, None), as_json, said)
    task = followed(server, task)
    merged = merged_checkpoint(server, run, task)
    if as_json:
        return print_json(_document(task, merged))
    say(f"{checkpoint['name']} is merged: {merged['name']}, {formats.size(merged['size_bytes'])}.")
    say(f"`rankzero download {run} {merged['name']}` fetches it.")


_COMMANDS: tuple[Callable[..., None], ...] = (
    tensors.show,
    tensors.diff,
    push,
    kept_checkpoints.pin,
    kept_checkpoints.unpin,
    kept_checkpoints.delete,
    kept_checkpoints.restore,
)
for command in _COMMANDS:
    checkpoint_app.command()(command)


@checkpoint_app.command("cancel")
def cancel(
    task: Annotated[int, typer.Argument(metavar="TASK", help="The number of the work.")],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """End the work of a node on a checkpoint; what it wrote is deleted."""
    ended = server_at(data).post(f"/api/checkpoint-tasks/{task}/cancel")
    said = ended["doing"] or f"is {ended['state']}"
    print_outcome(_document(ended, None), as_json, f"Task {task} {said}.")


def _document(task: dict[str, Any], checkpoint: dict[str, Any] | None) -> dict[str, Any]:
    return {name: task[name] for name in ("id", "state", "message", "result")} | {"checkpoint": checkpoint}
