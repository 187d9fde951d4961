"""Installs code snapshots: fetched once per node, verified by SHA-256, unpacked for every attempt."""

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
MAX_MEMBERS = 20_000

FetchSnapshot = Callable[[str, Path], None]
"""(SHA-256, file): download the archive with that hash into a new file and verify it."""


def install(sha256: str, cache: Path, work: Path, fetch: FetchSnapshot, cache_bytes: int = CACHE_BYTES) -> None:
    """Create the folder `work` from a snapshot, completely or not at all. Raises BadArchive, OSError."""
    if work.exists():
        return  # created by an earlier worker, before the attempt started
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


def open_archive(sha256: str, cache: Path, fetch: FetchSnapshot) -> BinaryIO:
    """Open the archive in this node's cache, fetching it if it is missing or damaged.

    The open file stays readable even if another attempt deletes it from the cache."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive = cache / f"{sha256}.tar"
    with suppress(FileNotFoundError):
        file = archive.open("rb")
        if hashlib.file_digest(file, "sha256").hexdigest() == sha256:
            os.utime(archive)  # marks it as recently used
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
    """Unpack files, folders and links that stay inside; links come last, so that nothing is written through one.

    Raises BadArchive, OSError."""
    links: list[tuple[Path, str]] = []
    for count, member in enumerate(members(file, with_links=True), start=1):
        if count > MAX_MEMBERS:
            raise BadArchive(f"The archive holds more than {MAX_MEMBERS} entries.")
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
    """Reject a link that leaves the snapshot: `..` may only lead up to its top, and only at the start of the target."""
    parts = PurePosixPath(member.linkname).parts
    ups = next((i for i, name in enumerate(parts) if name != ".."), len(parts))
    depth = len(PurePosixPath(member.name).parts) - 1
    if not member.linkname or member.linkname.startswith("/") or ups > depth or ".." in parts[ups:]:
        raise BadArchive(f"The link {member.name[:100]!r} leaves the snapshot.")


def _drop_oldest(cache: Path, most_bytes: int) -> None:
    """Delete the least recently used archives until the cache holds at most `most_bytes`."""
    archives = []
    for path in cache.glob("*.tar"):
        with suppress(OSError):
            status = path.stat()
            archives.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in archives)
    for _, size, path in sorted(archives):
        if total > most_bytes:
            path.unlink(missing_ok=True)
            total -= size
