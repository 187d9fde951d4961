"""Read a script in a snapshot, whose sources are unpacked into a temporary folder."""

from __future__ import annotations

import tarfile
import tempfile
from functools import lru_cache
from pathlib import Path, PurePosixPath

from dashboard.script_reader.reading import Script, read_script
from dashboard.script_reader.source import LARGEST_FILE_BYTES, UnreadableScript

MOST_FILES = 500
SUFFIXES = (".py", ".yaml", ".yml")


@lru_cache(maxsize=64)
def read_from_snapshot(archive: Path, entry: str | None, module: str | None) -> Script:
    """Read a script in the archive of a snapshot, which never changes. Raises UnreadableScript."""
    with tempfile.TemporaryDirectory(prefix="rankzero-") as folder:
        try:
            _unpack_sources(archive, Path(folder))
        except (OSError, tarfile.TarError, ValueError) as error:
            raise UnreadableScript(f"The snapshot cannot be read ({error}).") from error
        return read_script(Path(folder), entry, module)


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
