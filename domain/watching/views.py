"""A watched run as people see it: what somebody else started, where, and the command that starts it again. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from domain.launch.plan import RESUME_OPTIONS
from domain.liveness import Contact

RESUME = "{resume}"
IN_PLACE = "workdir/"
"""Before the names of checkpoints that a run in place wrote."""


def command_again(
    argv: Sequence[str], cwd: str, name: str, project: str, tags: Collection[str], checkpoint: str | None,
    *, look_only: bool,
) -> str | None:  # fmt: skip
    """Return the command that starts a watched run again, to be pasted into a shell; None where it had none.

    `checkpoint`: the path on its machine from which it may resume."""
    if not argv:
        return None
    options = ["--name", name, *(["--project", project] if project != "default" else [])]
    options += [word for tag in tags for word in ("--tag", tag)] + (["--look-only"] if look_only else [])
    command = shlex.join(["rankzero", "watch", *options, "--", *resumed(argv, checkpoint)])
    return f"cd {shlex.quote(cwd)} && {command}"


def resumed(argv: Sequence[str], checkpoint: str | None) -> list[str]:
    """Return a command with the checkpoint as the value of its option to resume, and for `{resume}`."""
    if checkpoint is None:
        return [*argv]
    words, is_value = list[str](), False
    for argument in argv:
        option, equals, _ = argument.partition("=")
        is_option = option.lstrip("-").replace("-", "_") in RESUME_OPTIONS and (option.startswith("-") or equals)
        if is_value and not argument.startswith("-"):
            argument = checkpoint
        elif is_option and equals:
            argument = f"{option}={checkpoint}"
        words.append(argument.replace(RESUME, checkpoint))
        is_value = bool(is_option) and not equals
    return words


def path_on_machine(cwd: str, name: str) -> str | None:
    """Return where a checkpoint of this name lies on its machine; None where it lies in Rankzero's own folder."""
    if not name.startswith(IN_PLACE):
        return None
    path = name.removeprefix(IN_PLACE)
    is_folder = path.endswith(".tar") and not re.search(r"\.pth\.tar$", path)  # folders are sent as one file
    return str(PurePosixPath(cwd, path.removesuffix(".tar") if is_folder else path))


@dataclass(frozen=True)
class GuestView:
    """One host of a watched run, with all processes of the run that are watched there."""

    host: str
    run_id: str
    run: str
    """The run's name."""
    state: str
    """The run's."""
    contact: Contact
    silent_s: float
    processes: int
    devices: Sequence[str]
    """The name of each device that they use."""
    started: str
    """Who started it, and what did: mara (Slurm job 4711)."""
