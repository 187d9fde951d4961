"""Choose the Python of a run that names none: the environment in the script's project, if the nodes see it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from dashboard.paths import is_visible_folder, may_read
from domain.choices import RECIPES
from domain.lists.node_lists import versions_of

if TYPE_CHECKING:  # the command line needs no models for this
    from domain.spec import RunSpec
    from domain.views import NodeView


def project_python(target: str, entry: str | None = None) -> Path | None:
    """Return the Python of the .venv or venv beside a script or above it, up to its project's root.

    The root is the git checkout's, else the nearest folder with a pyproject.toml or uv.lock. None without one."""
    if target in RECIPES or not target.startswith("/"):
        return None
    try:
        return next((python for python in _pythons(Path(target), entry) if may_read(python.parents[1])), None)
    except (OSError, ValueError):  # a folder that may not be looked into, a name that is too long
        return None


ENVIRONMENTS = (".venv", "venv")
PROJECT_FILES = ("pyproject.toml", "uv.lock")


def python_to_use(spec: RunSpec, nodes: Iterable[NodeView]) -> Path | None:
    """Return the project's Python for a spec that names none, if every node is on this machine.

    Other machines may not have it: their nodes use their default unless the spec names one."""
    host_names = [node.hostname for node in nodes if node.state != "lost"]
    is_open = not (spec.python or spec.snapshot) and all_here(host_names)
    return project_python(spec.target, spec.entry) if is_open else None


def all_here(host_names: Iterable[str]) -> bool:
    """Whether all host names are this machine's, so that paths are valid on every node."""
    return set(host_names) <= {socket.gethostname()}


def remark(spec: RunSpec) -> str | None:
    """Return the clause that says a run uses its project's Python; None where it does not."""
    if not spec.python or spec.python != str(project_python(spec.target, spec.entry)):
        return None
    return f"uses {spec.python}, found in the project"


def advice(spec: RunSpec) -> str | None:
    """Return a sentence that says a plan uses its project's Python; None where it does not."""
    sentence = remark(spec)
    return f"The run {sentence}; choose another with --python." if sentence else None


def described(properties: Mapping[str, Any]) -> list[str]:
    """Return an interpreter's known versions and path: Python 3.11.8, torch 2.13.0, CUDA 12.6, NCCL 2.21.5."""
    return versions_of(properties) + ([str(properties["path"])] if properties.get("path") else [])


def programs(python: str | None) -> tuple[str, str | None]:
    """Return (interpreter, torchrun) for a preview; torchrun is None where only a node can find it."""
    if python is None or "/" not in python:
        return python or "python", "torchrun" if python is None else None
    program = PurePosixPath(python, "bin", "python") if is_visible_folder(python) else PurePosixPath(python)
    return str(program), str(program.with_name("torchrun"))


def _pythons(target: Path, entry: str | None) -> Iterator[Path]:
    base = target if target.is_dir() else target.parent
    start = (base / entry).parent if entry and target.is_dir() else base
    if not start.is_dir():
        return
    owners = {os.getuid(), 0, start.stat().st_uid}
    for folder in _up_to_root(start, base):
        for name in ENVIRONMENTS:
            environment = folder / name
            python = environment / "bin" / "python"
            is_environment = (environment / "pyvenv.cfg").is_file() and os.path.lexists(python)
            # Never another user's: in a world-writable folder anybody could place a Python.
            if is_environment and environment.stat().st_uid in owners:
                yield python


def _up_to_root(start: Path, base: Path) -> list[Path]:
    """Return the folders from the script's up to its project's root."""
    folders = [start, *start.parents]
    checkouts = [folder for folder in folders if (folder / ".git").exists()]
    projects = [folder for folder in folders if any((folder / name).is_file() for name in PROJECT_FILES)]
    root = (checkouts or projects or [start])[0]
    last = max(folders.index(root), folders.index(base) if base in folders else 0)
    return folders[: last + 1]
