"""`rankzero checkpoints, download`: list a run's checkpoints and fetch verified copies of them."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.server.checkpoint_tasks import FORMAT_HELP, FormatOption, followed, merge, merged_checkpoint
from cli.server.client import ServerClient
from cli.server.download import Transfer, plain_downloads
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal import CommandFailed, print_json, print_list, print_outcome, printable, say
from domain.checkpoints.names import is_folder
from domain.clients import downloads
from domain.lists import run_lists
from domain.text import formats
from domain.text.columns import Column, Columns, Figure


def checkpoints(
    run: RunId, send_again: SendAgain = None, deleted: Deleted = False, data: Data = None, as_json: Json = False
) -> None:
    """List a run's checkpoints, newest first."""
    server = server_at(data)
    if deleted:
        return print_deleted(server, run, as_json)
    entries = server.get(run_path(run, "checkpoints"))
    if send_again is not None:
        chosen = _partial(entries, run, send_again)
        answer = server.post(f"/api/checkpoints/{chosen['id']}/send-again")
        return print_outcome(answer, as_json, f"The node of checkpoint {send_again} is asked to send it again.")
    columns = run_lists.checkpoints(lambda at: formats.ago(at, time.time()))
    print_list(columns, entries, as_json, f"Run {run} has saved no checkpoint yet.")
    if not as_json:
        _say_more(entries)


SendAgain = Annotated[
    str | None,
    typer.Option(
        "--send-again",
        metavar="NAME",
        help="Have its node resend a checkpoint that never fully arrived.",
    ),
]


Deleted = Annotated[bool, typer.Option("--deleted", help="Deleted checkpoints that can be restored.")]


def print_deleted(server: ServerClient, run: str, as_json: bool) -> None:
    """Print the deleted checkpoints of a run that can be restored."""
    columns: Columns[Any] = [
        Column("name"), Figure("step", lambda one: formats.count(one.step)),
        Figure("size", lambda one: formats.size(one.size_bytes)),
        Column("deleted", lambda one: formats.ago(one.deleted_at, time.time())),
        Column("by", lambda one: run_lists.deleter(one)),
        Column("restorable until (UTC)", lambda one: formats.clock_time(one.kept_until)),
    ]  # fmt: skip
    entries = server.get(run_path(run, "deleted-checkpoints"))
    print_list(columns, entries, as_json, f"Run {run} has no deleted checkpoints to restore.")


def _say_more(entries: list[dict[str, Any]]) -> None:
    """Say why some cannot be stored, and that some names have a prefix."""
    for problem in dict.fromkeys(entry["trouble"] for entry in entries if entry.get("trouble")):
        say(printable(problem))
    if prefixed := [entry for entry in entries if entry.get("prefix")]:
        say(
            f"Names in {printable(prefixed[0]['name'])} begin with {printable(prefixed[0]['prefix'])}"
            f"{' (and in others)' if len(prefixed) > 1 else ''}: `rankzero checkpoint merge` removes it."
        )


def _partial(entries: list[dict[str, Any]], run: str, name: str) -> dict[str, Any]:
    """Return the newest incomplete checkpoint of that name. Raises CommandFailed."""
    for entry in entries:
        if entry["name"] == name and not entry["complete"]:
            return entry
    raise CommandFailed(f"Run {run} has no incomplete checkpoint {name!r}.")


def download(
    run: RunId,
    name: Annotated[str | None, typer.Argument(help="Its name.", show_default="the latest complete one")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PATH", help="File or folder to write to.")
    ] = None,
    format: Annotated[
        FormatOption | None, typer.Option("--format", help=f"Merge it first. {FORMAT_HELP}", show_default=False)
    ] = None,
    strip_prefix: Annotated[bool, typer.Option("--strip-prefix", help="As --format safetensors.")] = False,
    safetensors: Annotated[bool, typer.Option("--safetensors", help="As --format safetensors.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Download a checkpoint. An interrupted download continues; the SHA-256 is verified."""
    server = server_at(data)
    checkpoint = choose(server.get(run_path(run, "checkpoints")), run, name)
    wanted = format or (FormatOption.SAFETENSORS if strip_prefix or safetensors else None)
    if wanted is not None and (wanted is FormatOption.HF or checkpoint.get("merged_from") is None):
        checkpoint = merged_checkpoint(server, run, followed(server, merge(server, checkpoint, wanted.value)))
    target = _target_path(checkpoint["name"], output)
    with plain_downloads():
        is_there = downloads.is_there(target, checkpoint, overwrite=output is not None)
    if is_there:
        status = "already exists"
    else:
        Transfer(server, checkpoint, target).run()
        status = f"downloaded, {formats.size(checkpoint['size_bytes'])}"
    if as_json:
        merged = {"merged_from": checkpoint["merged_from_name"]} if wanted else {}
        return print_json({"path": str(target), "sha256": checkpoint["sha256"]} | merged)
    say(f"{target} {status}; SHA-256 {checkpoint['sha256']} agrees.")
    if is_folder(checkpoint["name"]):
        say(f"It is an archive of a folder; unpack it: {shlex.join(['tar', '-xf', str(target)])}")


def choose(entries: list[dict[str, Any]], run: str, name: str | None) -> dict[str, Any]:
    """Return the newest complete checkpoint of that name (None: of any). Raises CommandFailed where there is none."""
    with plain_downloads():
        return downloads.choose(entries, run, name)


def _target_path(name: str, output: Path | None) -> Path:
    """Return the file to write (`downloads.target_path`). Raises CommandFailed."""
    try:
        return downloads.target_path(name, output)
    except NotADirectoryError as error:
        raise CommandFailed(f"--output: {error}", 2) from None
