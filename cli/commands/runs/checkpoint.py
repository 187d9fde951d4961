"""`rankzero checkpoint`: work on a single checkpoint: merge, pin, delete and restore it."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Annotated, Any

import typer

from cli.commands.runs.checkpoints import choose
from cli.commands.runs.runs import Yes
from cli.server.checkpoint_tasks import FORMAT_HELP, Format, followed, merge, merged_checkpoint
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal import CommandFailed, ask_or_tell, print_json, print_outcome, printable, say
from domain.text import formats

checkpoint_app = typer.Typer(no_args_is_help=True)
Name = Annotated[str | None, typer.Argument(help="Its name.", show_default="the latest complete one")]
GivenName = Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its id.", show_default=False)]


@checkpoint_app.callback()
def checkpoint() -> None:
    """Merge, pin, delete and restore single checkpoints."""


@checkpoint_app.command("merge")
def merge_checkpoint(
    run: RunId,
    name: Name = None,
    format: Annotated[Format, typer.Option("--format", help=FORMAT_HELP)] = Format.SAFETENSORS,
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


@checkpoint_app.command()
def pin(run: RunId, name: GivenName, data: Data = None, as_json: Json = False) -> None:
    """Keep a checkpoint whatever the retention rule."""
    server = server_at(data)
    chosen = named(server.get(run_path(run, "checkpoints")), run, name)
    answer = server.put(f"/api/checkpoints/{chosen['id']}/pin", {})
    print_outcome(answer, as_json, f"Checkpoint {printable(chosen['name'])} is pinned: no rule deletes it.")


@checkpoint_app.command()
def unpin(run: RunId, name: GivenName, data: Data = None, as_json: Json = False) -> None:
    """Leave a checkpoint to the retention rule again."""
    server = server_at(data)
    chosen = named(server.get(run_path(run, "checkpoints")), run, name)
    answer = server.delete(f"/api/checkpoints/{chosen['id']}/pin")
    print_outcome(answer, as_json, f"Checkpoint {printable(chosen['name'])} is not pinned any more.")


@checkpoint_app.command()
def delete(run: RunId, name: GivenName, yes: Yes = False, data: Data = None, as_json: Json = False) -> None:
    """Delete a checkpoint that is neither pinned nor in use; for some days it can be restored."""
    server = server_at(data)
    chosen = named(server.get(run_path(run, "checkpoints")), run, name)
    ask_or_tell(f"This deletes {printable(chosen['name'])} ({formats.size(chosen['size_bytes'])}).", yes)
    answer = server.delete(f"/api/checkpoints/{chosen['id']}")
    print_outcome(answer, as_json, _deleted(run, answer))


@checkpoint_app.command()
def restore(run: RunId, name: GivenName, data: Data = None, as_json: Json = False) -> None:
    """Bring a deleted checkpoint back; it is pinned, so that no rule deletes it again."""
    server = server_at(data)
    chosen = named(server.get(run_path(run, "deleted-checkpoints")), run, name, "deleted checkpoint", " --deleted")
    answer = server.post(f"/api/checkpoints/{chosen['id']}/restore")
    print_outcome(answer, as_json, f"Checkpoint {printable(chosen['name'])} is back, and pinned.")


def named(
    entries: list[dict[str, Any]], run: str, name: str, noun: str = "checkpoint", option: str = ""
) -> dict[str, Any]:
    """Return the newest entry with this id, name or file name. Raises CommandFailed."""
    for meant in (
        [one for one in entries if str(one["id"]) == name],
        [one for one in entries if one["name"] == name],
        [one for one in entries if PurePosixPath(one["name"]).name == name],
    ):
        if meant:
            return meant[0]
    raise CommandFailed(f"Run {run} has no {noun} {name!r}; `rankzero checkpoints {run}{option}` lists them.")


def _deleted(run: str, answer: dict[str, Any]) -> str:
    if answer.get("kept_until") is None:
        return "The checkpoint is deleted for good."
    restore_it = shlex.join(["rankzero", "checkpoint", "restore", run, answer["name"]])
    until = formats.clock_time(answer["kept_until"])
    return f"Checkpoint {printable(answer['name'])} is deleted. Can be restored until {until} UTC: `{restore_it}`."


def _document(task: dict[str, Any], checkpoint: dict[str, Any] | None) -> dict[str, Any]:
    return {name: task[name] for name in ("id", "state", "message", "result")} | {"checkpoint": checkpoint}
