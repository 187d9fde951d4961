"""Builds the environment of a pixi.lock or environment.yml with the node's own pixi or conda."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from domain.environments.locks import BadLock, Lock
from worker.environments.uv import ProgramMissing, program

CONDAS = ("micromamba", "mamba", "conda")
"""Programs that make an environment of an environment.yml, the fastest first."""
MANIFESTS = ("pixi.toml", "pyproject.toml")
Run = Callable[[Sequence[str], Path], str]
"""(argv, folder): run a program to its end. Raises ProgramFailed, Stopped."""


def tool_of(lock: Lock) -> str:
    """Return the program that builds the lock. Raises ProgramMissing where the node has none."""
    if lock.kind == "pixi.lock":
        return _found("pixi", lock)
    for name in CONDAS:
        if shutil.which(name):
            return program(name)
    return _found("conda", lock)


def install(lock: Lock, beside: Path, folder: Path, run: Run) -> None:
    """Fill the environment's folder, at its final place: such environments cannot be renamed.

    Raises BadLock, ProgramMissing, ProgramFailed, Stopped, OSError."""
    tool = tool_of(lock)
    if lock.kind != "pixi.lock":
        create = ["env", "create"] if Path(tool).name != "micromamba" else ["create"]
        run([tool, *create, "--yes", "--prefix", str(folder), "--file", str(beside / Path(lock.path).name)], beside)
        return
    manifest = next((beside / name for name in MANIFESTS if (beside / name).exists()), None)
    if manifest is None:
        raise BadLock(f"There is no pixi.toml beside {lock.path}")
    folder.mkdir()
    for path in (manifest, beside / "pixi.lock"):
        shutil.copy(path, folder)
    run([tool, "install", "--frozen", "--manifest-path", str(folder / manifest.name)], folder)
    (folder / "bin").symlink_to(Path(".pixi") / "envs" / "default" / "bin")


def _found(name: str, lock: Lock) -> str:
    try:
        return program(name)
    except ProgramMissing:
        text = f"{lock.path} is built by {name}, which this node does not have: install it there, or use a uv.lock"
        raise ProgramMissing(f"{text} or requirements.txt.") from None
