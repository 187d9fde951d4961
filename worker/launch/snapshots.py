"""Code on its way to a run: fetched once a node, checked by its SHA-256, unpacked for every attempt anew."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from worker.launch.unpack import BadArchive, members, safe_parts, write_new

CACHE_BYTES = 1024**3
MOST_MEMBERS = 20_000

Fetch = Callable[[str, Path], None]
"""(SHA-256, file): bring the archive of that hash into a new file, verified."""


def bring(sha256: str, cache: Path, work: Path, fetch: Fetch, cache_bytes: int = CACHE_BYTES) -> None:
    """Make `work` out of a snapshot; whole, or not at all. Raises BadArchive, OSError."""
    if work.exists():
        return  # made by an earlier worker; nothing was started without it
    staging = work.with_name(f".{work.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        with open_archive(sha256, cache, fetch) as file:
            unpack_code(file, staging)
        staging.rename(work)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _drop_oldest(cache, cache_bytes)


def open_archive(sha256: str, cache: Path, fetch: Fetch) -> BinaryIO:
    """The archive on this node, fetched when it is not there or not what it should be.

    Open, so that it can be read whatever another attempt drops meanwhile."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive = cache / f"{sha256}.tar"
    with suppress(FileNotFoundError):
        file = archive.open("rb")
        if hashlib.file_digest(file, "sha256").hexdigest() == sha256:
            os.utime(archive)  # used now
            file.seek(0)
            return file
        file.close()
    arriving = cache / f"{sha256}.{secrets.token_hex(4)}.part"
    try:
        fetch(sha256, arriving)
        arriving.replace(archive)
    finally:
        arriving.unlink(missing_ok=True)
    return archive.open("rb")


def unpack_code(file: BinaryIO, folder: Path) -> None:
    """Files, folders, and links that stay inside; the links last, so that nothing is written through one."""
    links: list[tuple[Path, str]] = []
    for count, member in enumerate(members(file, with_links=True), start=1):
        if count > MOST_MEMBERS:
            raise BadArchive(f"The archive holds more than {MOST_MEMBERS} entries.")
        path = folder.joinpath(*safe_parts(member.name))
        (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
        if member.issym():
            _check_link(member)
            links.append((path, member.linkname))
        elif not member.isdir():
            write_new(path, file, member.size)
            if member.mode & 0o100:
                path.chmod(0o700)
    for path, target in links:
        path.symlink_to(target)


def _check_link(member: tarfile.TarInfo) -> None:
    """Up at most to the top, then down, and never up again: no other links on the way can lead it out."""
    parts = PurePosixPath(member.linkname).parts
    ups = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
    depth = len(PurePosixPath(member.name).parts) - 1
    if not member.linkname or member.linkname.startswith("/") or ups > depth or ".." in parts[ups:]:
        raise BadArchive(f"The link {member.name[:100]!r} leaves the snapshot.")


def _drop_oldest(cache: Path, most_bytes: int) -> None:
    """What was not used for longest goes first."""
    found = []
    for path in cache.glob("*.tar"):
        with suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total > most_bytes:
            path.unlink(missing_ok=True)
            total -= size
