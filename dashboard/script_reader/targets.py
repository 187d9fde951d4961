"""Read the scripts of specs, on this machine or in a stored snapshot."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath

from dashboard.paths import is_file, is_folder, may_read, readable_files
from dashboard.script_reader.reading import Script, read_script
from dashboard.script_reader.source import LARGEST_FILE_BYTES, UnreadableScript
from db import acting
from domain.choices import RECIPES
from domain.spec import RunSpec

MOST_FILES = 500
SUFFIXES = (".py", ".yaml", ".yml")


def script_of(spec: RunSpec) -> Script | None:
    """Return a spec's script; None where it cannot be read."""
    script = script_or_problem(spec)
    return script if isinstance(script, Script) else None


def script_or_problem(spec: RunSpec) -> Script | UnreadableScript:
    """Return a spec's script, or the reason why it cannot be read."""
    try:
        return read(spec)
    except UnreadableScript as problem:
        return problem


def read(spec: RunSpec) -> Script:
    """Return a spec's script. Raises UnreadableScript."""
    return read_target(spec.target, spec.entry, spec.module, spec.snapshot)


def read_target(
    target: str, entry: str | None = None, module: str | None = None, snapshot: str | None = None
) -> Script:
    """Read a script, or the entry of a folder, on this machine or in a snapshot. Raises UnreadableScript."""
    if snapshot:
        return read_from_snapshot(_archive(snapshot), entry, module)
    path = Path(target)
    if target in RECIPES or not path.is_absolute():
        raise UnreadableScript(f"{target} is not a path on this machine.")
    if not may_read(path):
        raise UnreadableScript(f"{target} is not a file that can be read here.")
    rule = readable_files(only_public=not acting.rights().reads_all_files)  # what is remembered differs by it
    if not is_folder(path):
        return read_script(path.parent, path.name, may_read=rule)
    if not (entry or module):
        raise UnreadableScript(f"{target} is a folder: name the file or module to start in it.")
    return read_script(path, entry, module, may_read=rule)


def read_snapshots_at(path_of: Callable[[str], Path | None]) -> None:
    """Set the function that maps a snapshot's SHA-256 to its archive, None where the actor may not use it; for the
    whole process."""
    global _path_of
    _path_of = path_of


def _archive(snapshot: str) -> Path:
    if _path_of is None:
        raise UnreadableScript("No snapshots are kept here.")
    if (path := _path_of(snapshot)) is None:
        raise UnreadableScript("There is no such snapshot here.")
    return path


_path_of: Callable[[str], Path | None] | None = None


@lru_cache(maxsize=64)
def read_from_snapshot(archive: Path, entry: str | None, module: str | None) -> Script:
    """Read a script in the archive of a snapshot, which never changes. Raises UnreadableScript."""
    with tempfile.TemporaryDirectory(prefix="rankzero-") as folder:
        try:
            _unpack_sources(archive, Path(folder))
        except (OSError, tarfile.TarError, ValueError) as error:
            raise UnreadableScript(f"The snapshot cannot be read ({error}).") from error
        return read_script(Path(folder), entry, module, may_read=partial(_is_within, Path(folder)))


def _is_within(folder: Path, path: Path) -> bool:
    """Whether a path is a file of a folder: a script of stored code names none of this machine's."""
    return is_file(path) and path.resolve().is_relative_to(folder.resolve())


def _unpack_sources(archive: Path, folder: Path) -> None:
    """Unpack the first few hundred small sources, without links."""
    unpacked = 0
    with tarfile.open(archive, "r:", encoding="utf-8", errors="surrogateescape") as members:
        for member in members:
            name = PurePosixPath(member.name)
            is_inside = not name.is_absolute() and ".." not in name.parts
            is_source = member.isreg() and name.suffix in SUFFIXES and member.size <= LARGEST_FILE_BYTES
            if not (is_inside and is_source) or unpacked >= MOST_FILES:
                continue
            file = members.extractfile(member)
            assert file is not None
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.read())
            unpacked += 1
