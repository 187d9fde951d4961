"""`rankzero checkpoint push`: send a checkpoint from a node to the Hugging Face Hub or into a bucket."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.commands.runs.checkpoints import choose
from cli.server.checkpoint_tasks import FormatOption, followed, merge, merged_checkpoint
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal import print_outcome, printable
from domain.checkpoint_use.push_target import FORMS
from domain.text import formats


def push(
    run: RunId,
    name: Annotated[str | None, typer.Argument(help="Its name.", show_default="the newest merged one")] = None,
    *,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help=f"{FORMS}.")],
    public: Annotated[bool, typer.Option("--public", help="Create a public repository, or push to one.")] = False,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", metavar="NAME", help="Your secret for it, such as HF_TOKEN=LAB_TOKEN; may be repeated."
        ),
    ] = None,
    as_saved: Annotated[bool, typer.Option("--as-saved", help="Push what the training saved, unmerged.")] = False,
    format: Annotated[FormatOption | None, typer.Option("--format", help="Merge it first.", show_default=False)] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return before it is done.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Push a merged checkpoint to the Hugging Face Hub or into a bucket, private, with a model card.

    A push that was cut off continues when it is repeated."""
    server = server_at(data)
    chosen = _chosen(
        server.get(run_path(run, "checkpoints")), run, name, prefers_merged=not as_saved and format is None
    )
    if format is not None:
        chosen = merged_checkpoint(server, run, followed(server, merge(server, chosen, format.value)))
    asked = {"to": to, "public": public, "secrets": secret or [], "as_saved": as_saved}
    task = server.post(f"/api/checkpoints/{chosen['id']}/push", asked)
    if no_wait:
        sentence = f"Node {task['node']} pushes {printable(chosen['name'])} to {to} (task {task['id']})."
        return print_outcome(_document(task), as_json, sentence)
    task = followed(server, task)
    result = task["result"]
    sentence = f"{printable(task['name'])} is at {result['url']}: {formats.plural(result['files'], 'file')}, "
    sentence += f"{formats.size(result['bytes'])}, of which {formats.size(result['sent_bytes'])} were sent."
    print_outcome(_document(task), as_json, " ".join([sentence, *map(printable, result["notes"])]))


def _chosen(entries: list[dict[str, Any]], run: str, name: str | None, prefers_merged: bool) -> dict[str, Any]:
    """Return the checkpoint of that name; without one the newest merged one, else the latest. Raises CommandFailed."""
    merged = [entry for entry in entries if entry.get("merged_from") is not None and entry["complete"]]
    if name is None and merged and prefers_merged:
        return max(merged, key=lambda entry: (entry["created_at"], entry["id"]))
    return choose(entries, run, name)


def _document(task: dict[str, Any]) -> dict[str, Any]:
    result = task["result"] or {}
    return {name: task[name] for name in ("id", "state")} | {
        name: result.get(name) for name in ("url", "files", "bytes")
    }
