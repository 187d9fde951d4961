"""Unpack a browser's upload, a script or a project's archive, with limits on names, files and size."""

from __future__ import annotations

import gzip
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from dashboard.snapshots.archive import MOST_ENTRIES, MOST_FILES, too_many_files
from dashboard.snapshots.code_packing import check_python
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.selection import Selection, TooManyFiles, select
from domain.text import formats


def unpack(file: Path, name: str, folder: Path, limit_bytes: int) -> tuple[str | None, Selection]:
    """Unpack an upload into a new folder.

    Returns the script's name (None for an archive) and the selected files. Raises CodeRefused."""
    file_name = PurePosixPath(name.replace("\\", "/")).name
    folder.mkdir()
    if file_name.endswith(".py") and len(file_name) <= LONGEST_NAME and file_name.isprintable():
        file.replace(folder / file_name)
        check_python(folder / file_name, "target")
        return file_name, select(folder, ask_git=False)
    if not file_name.endswith(ARCHIVES):
        allowed = ", ".join((".py", *ARCHIVES))
        raise CodeRefused("target", f"{file_name[:60]!r} is neither a script nor an archive; upload one of {allowed}.")
    _unpack_archive(file, file_name, folder, limit_bytes)
    try:
        selection = select(_only_folder(folder), ask_git=False)
    except TooManyFiles:
        raise too_many_files(folder, MOST_FILES) from None
    if not selection.files:
        raise CodeRefused("target", f"{file_name[:60]} contains no files.")
    return None, selection


ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
LONGEST_NAME = 200
MOST_DEPTH = 32
_PIECE_BYTES = 1024 * 1024
_HEADER_BYTES = 2048
"""Of one entry in a tar, with a long name."""
_MOST_DIRECTORY_BYTES = MOST_ENTRIES * 200
"""Of a zip's list of names, which `zipfile` reads as a whole."""
_END_OF_ZIP = struct.Struct("<4s4H2LH")
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, ValueError, RuntimeError,
           NotImplementedError)  # fmt: skip
Members = Generator[tuple[str, IO[bytes]], None, None]


def scripts(selection: Selection, script: str | None) -> list[str]:
    """Return the possible entries, the most likely first: short paths, named `train…` or `main`."""
    if script is not None:
        return [script]
    names = [item.name for item in selection.items if item.kind == "file" and item.name.endswith(".py")]
    names = [name for name in names if not name.endswith(("__init__.py", "setup.py"))]
    return sorted(names, key=_likeliness)[:100]


def _likeliness(name: str) -> tuple[int, int, str]:
    stem = PurePosixPath(name).stem
    return name.count("/"), 0 if stem.startswith("train") else 1 if stem == "main" else 2, name


def _unpack_archive(file: Path, name: str, folder: Path, bytes_left: int) -> None:
    limit_bytes = bytes_left
    with _members(file, name, limit_bytes) as members:
        try:
            for count, (member, content) in enumerate(members, start=1):
                if count > MOST_FILES:
                    raise too_many_files(Path(name), MOST_FILES)
                bytes_left -= _write(folder, member, content, bytes_left)
                if bytes_left < 0:
                    raise CodeRefused("target", f"{name} contains more than {formats.size(limit_bytes)}, the limit.")
        except _BROKEN as error:
            raise CodeRefused("target", f"{name} cannot be unpacked ({error or type(error).__name__}).") from error


@contextmanager
def _members(file: Path, name: str, limit_bytes: int) -> Iterator[Members]:
    """Iterate over the regular files of an archive; links and everything else are skipped."""
    with ExitStack() as open_until_end:
        raw = open_until_end.enter_context(file.open("rb"))
        try:
            if name.endswith(".zip"):
                _check_directory(raw, name)
                members = _of_zip(open_until_end.enter_context(zipfile.ZipFile(raw)))
            else:
                plain = raw if name.endswith(".tar") else open_until_end.enter_context(gzip.GzipFile(fileobj=raw))
                limited = _Limited(plain, name, limit_bytes + MOST_ENTRIES * _HEADER_BYTES)
                members = _of_tar(open_until_end.enter_context(tarfile.open(fileobj=limited, mode="r|")))  # type: ignore[call-overload]
        except _BROKEN as error:
            raise CodeRefused("target", f"{name} is not a valid archive ({error}).") from error
        open_until_end.callback(members.close)
        yield members


class _Limited:
    """The unpacked bytes of an archive, names and skipped entries too, up to a limit."""

    def __init__(self, plain: IO[bytes] | gzip.GzipFile, name: str, limit_bytes: int) -> None:
        self._plain, self._name = plain, name
        self._limit_bytes = self._bytes_left = limit_bytes

    def read(self, size: int) -> bytes:
        """Return the next bytes. Raises CodeRefused where there are more than the limit."""
        content = self._plain.read(min(size, self._bytes_left + 1))
        self._bytes_left -= len(content)
        if self._bytes_left < 0:
            raise CodeRefused(
                "target", f"{self._name} unpacks to more than {formats.size(self._limit_bytes)}, the limit."
            )
        return content


def _check_directory(raw: IO[bytes], name: str) -> None:
    """Refuse a zip whose list of names is too long to be read. Raises CodeRefused."""
    raw.seek(max(0, raw.seek(0, os.SEEK_END) - _END_OF_ZIP.size - 0xFFFF))
    tail = raw.read()
    end_at = tail.rfind(b"PK\5\6")
    if end_at >= 0 and len(tail) - end_at >= _END_OF_ZIP.size:
        size_bytes = _END_OF_ZIP.unpack_from(tail, end_at)[5]
        if size_bytes > _MOST_DIRECTORY_BYTES:
            raise too_many_files(Path(name), MOST_FILES)


def _of_zip(archive: zipfile.ZipFile) -> Members:
    for entry in archive.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if not entry.is_dir() and kind in (0, stat.S_IFREG):
            with archive.open(entry) as content:
                yield entry.filename, content


def _of_tar(archive: tarfile.TarFile) -> Members:
    for entry in archive:
        content = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
        if content is not None:
            yield entry.name, content


def _write(folder: Path, name: str, content: IO[bytes], bytes_left: int) -> int:
    """Write one file, at most one chunk beyond the limit, and return its size. Raises CodeRefused for unsafe names."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name or len(parts) > MOST_DEPTH:
        raise CodeRefused("target", f"the archive contains {name[:100]!r}, which is not a name inside a folder.")
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with path.open("xb") as file:
        while written <= bytes_left and (chunk := content.read(_PIECE_BYTES)):
            written += file.write(chunk)
    return written


def _only_folder(folder: Path) -> Path:
    """Return the innermost folder that is the only entry: most archives contain one folder."""
    while True:
        inside = [path for path in folder.iterdir() if path.name != "__MACOSX"]
        if len(inside) != 1 or not inside[0].is_dir():
            return folder
        folder = inside[0]
