"""`rankzero checkpoint pin, unpin, delete, restore`: keep single checkpoints on purpose."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Annotated, Any

import typer

from cli.commands.runs.runs import Yes
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal import CommandFailed, ask_or_tell, print_outcome, printable
from domain.text import formats

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its id.", show_default=False)]


def pin(run: RunId, name: Name, data: Data = None, as_json: Json = False) -> None:
    """Keep a checkpoint whatever the retention rule."""
    server = server_at(data)
    chosen = named(server.get(run_path(run, "checkpoints")), run, name)
    answer = server.put(f"/api/checkpoints/{chosen['id']}/pin", {})
    print_outcome(answer, as_json, f"Checkpoint {printable(chosen['name'])} is pinned: no rule deletes it.")


def unpin(run: RunId, name: Name, data: Data = None, as_json: Json = False) -> None:
    """Leave a checkpoint to the retention rule again."""
    server = server_at(data)
    chosen = named(server.get(run_path(run, "checkpoints")), run, name)
    answer = server.delete(f"/api/checkpoints/{chosen['id']}/pin")
    print_outcome(answer, as_json, f"Checkpoint {printable(chosen['name'])} is not pinned any more.")


def delete(run: RunId, name: Name, yes: Yes = False, data: Data = None, as_json: Json = False) -> None:
    """Delete a checkpoint that is neither pinned nor in use; for some days it can be restored."""
    server = server_at(data)
    chosen = named(server.get(run_path(run, "checkpoints")), run, name)
    ask_or_tell(f"This deletes {printable(chosen['name'])} ({formats.size(chosen['size_bytes'])}).", yes)
    answer = server.delete(f"/api/checkpoints/{chosen['id']}")
    print_outcome(answer, as_json, _deleted(run, answer))


def restore(run: RunId, name: Name, data: Data = None, as_json: Json = False) -> None:
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
    restore_it = shlex.join(["rankzero", "checkpoint", "restore", run, str(answer["id"])])
    until = formats.clock_time(answer["kept_until"])
    return f"Checkpoint {printable(answer['name'])} is deleted. Can be restored until {until} UTC: `{restore_it}`."
