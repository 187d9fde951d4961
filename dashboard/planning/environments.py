"""Say which environment each node will build for a run, from the lock files of its code."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.snapshots.archive import Archive
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.selection import Selection
from domain.environments.locks import BadLock, Contents, Lock, choose, contents, required
from domain.environments.requirements import Read, decoded
from domain.text.formats import plural

if TYPE_CHECKING:  # the command line needs no models for this
    from domain.spec import RunSpec

BUILT, NOT_BUILT = "Each node builds", "No environment is built for this run."
MOST_BYTES = 32 * 1024 * 1024
"""Larger files are no lock files."""


def of_selection(selection: Selection, entry: str | None, choice: str) -> str:
    """Return the sentence about the code that a launch would store; empty where there is nothing to say.

    Raises CodeRefused where the code lacks the lock that is asked for."""
    paths = {item.name: item.path for item in selection.items if item.kind == "file"}

    def read(name: str) -> str | None:
        path = paths.get(name)
        return _text(path) if path else None

    return sentence(choice, entry, paths, read)


def of_archive(path: Path, entry: str | None, choice: str) -> str:
    """Return the sentence about a stored snapshot; empty where there is nothing to say. Raises CodeRefused."""
    archive = Archive(path)

    def read(name: str) -> str | None:
        content = archive.read(name, MOST_BYTES)
        return None if content is None else decoded(content)

    try:
        names = set(archive.files())
    except CodeRefused:
        return ""
    return sentence(choice, entry, names, read)


def check_stored(spec: RunSpec, archive_of: Callable[[str], Path]) -> None:
    """Refuse a lock that the stored code of a spec lacks or that no node could build. Raises CodeRefused."""
    if spec.snapshot and spec.environment not in ("auto", "none"):
        of_archive(archive_of(spec.snapshot), spec.entry, spec.environment)


def of_recipe(choice: str) -> str:
    """Return the sentence about a recipe, whose code has no lock. Raises CodeRefused."""
    return sentence(choice, None, (), lambda _: None)


def sentence(choice: str, entry: str | None, paths: Collection[str], read: Read) -> str:
    """Return what each node will build, or why it builds nothing although the code has a file that looks like a lock.

    It is what the nodes decide in the same way. Raises CodeRefused where the asked lock is none."""
    if choice == "none" or choice.startswith("/"):
        return ""
    try:
        if choice == "auto":
            lock, remark = choose(paths, entry, read)
            return _built(lock, contents(lock, read)) if lock else f"{remark} {NOT_BUILT}" if remark else ""
        return _built(*required(choice, paths, entry, read))
    except BadLock as error:
        raise CodeRefused("environment", str(error)) from error


def _built(lock: Lock, names: Contents) -> str:
    torch = f" with torch {names.torch}" if names.torch else ""
    return f"{BUILT} the environment of {lock.label} once: {plural(names.packages, 'package')}{torch}."


def _text(path: Path) -> str | None:
    try:
        return decoded(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else None
    except OSError:
        return None
