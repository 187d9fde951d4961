"""`rankzero freeze`: make a lock of the environment that a person trains with here."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cli.server.options import Json
from cli.terminal import CommandFailed, print_json, say, warn
from domain.text.formats import plural


def freeze(
    python: Annotated[
        str | None, typer.Option(help="Python whose packages are written.", show_default="the project's")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("requirements.txt"),
    yes: Annotated[bool, typer.Option("--yes", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Write all packages of the Python you train with, and their versions, as a lock that nodes build from.

    Raises CommandFailed."""
    from dashboard.planning.freezing import CannotFreeze
    from dashboard.planning.freezing import freeze as write

    try:
        frozen = write(_python(python, output), output.absolute(), replace=yes)
    except CannotFreeze as error:
        raise CommandFailed(str(error)) from None
    for line in frozen.left_out:
        warn(f"Note: {line} is left out: only this machine has it.")
    if as_json:
        print_json(asdict(frozen))
    else:
        say(f"{frozen.path}: {plural(frozen.packages, 'package')} of {frozen.python}")


def _python(named: str | None, output: Path) -> Path:
    """Return the Python named, or of the project, the active environment, or PATH. Raises CommandFailed."""
    from dashboard.planning.interpreters import project_python

    if named:
        path = Path(named).expanduser()
        return path / "bin" / "python" if path.is_dir() else Path(shutil.which(named) or path)
    active = os.environ.get("VIRTUAL_ENV")
    environment_python = project_python(str(output.absolute())) or (Path(active, "bin", "python") if active else None)
    program = environment_python or shutil.which("python3")
    if program is None:
        raise CommandFailed("python: there is none on PATH; name one with --python.", 2)
    return Path(program)
