"""Unpacks a checkpoint's archive, which may hold only regular files and folders below one folder."""

from __future__ import annotations

import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

MAX_MEMBERS = 100_000
MAX_NAME_BYTES = 4096
_BLOCK = tarfile.BLOCKSIZE
_PIECE_BYTES = 1024 * 1024


class BadArchive(Exception):
    """The archive is invalid; the message says why."""


def unpack(archive: Path, target: Path, *, max_bytes: int, max_members: int = MAX_MEMBERS) -> Path:
    """Create the folder `target` from the single folder in the archive, completely or not at all.

    `max_bytes` limits the bytes written, `max_members` the number of files and folders. Raises BadArchive, OSError.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists already")
    staging = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    staging.mkdir(mode=0o700, parents=True)
    try:
        with archive.open("rb") as file:
            top = _extract(file, staging, max_bytes, max_members)
        (staging / top).rename(target)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BadArchive(f"A name is in the archive twice: {error.filename}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _extract(file: IO[bytes], folder: Path, bytes_left: int, members_left: int) -> str:
    """Extract the archive into `folder`; returns the name of the single top folder."""
    tops = set()
    for member in members(file):
        parts = safe_parts(member.name)
        tops.add(parts[0])
        bytes_left, members_left = bytes_left - member.size, members_left - 1
        if bytes_left < 0 or members_left < 0:
            raise BadArchive("The archive holds more files or bytes than this checkpoint may have.")
        path = folder.joinpath(*parts)
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_new(path, file, member.size)
    if len(tops) != 1 or not (folder / min(tops)).is_dir():
        raise BadArchive(f"The archive must hold exactly one folder; it holds {sorted(tops)[:3]}.")
    return str(min(tops))


def members(file: IO[bytes], with_links: bool = False) -> Iterator[tarfile.TarInfo]:
    """Yield each member's header, with the file positioned at its content. Raises BadArchive.

    Headers are read one by one because anything beyond names, sizes and contents that `tarfile` would accept
    (sparse files, extended headers) is rejected here."""
    long_name = long_link = None
    while (header := _read(file, _BLOCK)).strip(b"\0"):
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise BadArchive(f"The archive is damaged at byte {file.tell() - _BLOCK}: {error}") from error
        end = file.tell() + -(-member.size // _BLOCK) * _BLOCK
        if member.type == tarfile.GNUTYPE_LONGNAME and 0 < member.size <= MAX_NAME_BYTES:
            long_name = _text(_read(file, member.size))
        elif with_links and member.type == tarfile.GNUTYPE_LONGLINK and 0 < member.size <= MAX_NAME_BYTES:
            long_link = _text(_read(file, member.size))
        elif _is_plain(member) or (with_links and member.issym()):
            member.name, long_name = long_name or member.name, None
            member.linkname, long_link = long_link or member.linkname, None
            yield member
        else:
            raise BadArchive(f"{member.name[:100]!r} is neither a regular file nor a folder.")
        file.seek(end)


def _is_plain(member: tarfile.TarInfo) -> bool:
    return member.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) and member.size >= 0


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "surrogateescape")


def safe_parts(name: str) -> tuple[str, ...]:
    """Split a member's name into the parts of a path below a folder. Raises BadArchive."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise BadArchive(f"{name[:100]!r} is not a path inside the archive's folder.")
    return parts


def write_new(path: Path, content: IO[bytes], size: int) -> None:
    """Write a new file; nothing is overwritten. Raises FileExistsError, BadArchive."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        while size:
            size -= file.write(_read(content, min(size, _PIECE_BYTES)))


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise BadArchive("The archive is cut short.")
    return data
