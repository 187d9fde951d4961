"""Whether a copy is what its writer meant: the CRC-32 of every member of a zip file, read once, in flat memory."""

from __future__ import annotations

import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from worker.checkpoints.names import is_archive
from worker.node.run_files import is_checkpoint_name

_PIECE_BYTES = 1024 * 1024
WRONG_SUM = "its content does not agree with the checksums in it: it was still being written, or is damaged"
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, NotImplementedError, EOFError, ValueError, struct.error)


def agrees_with_its_sums(copy: Path) -> bool:
    """False when a zip file (the copy itself, or one in a folder's archive) differs from its own checksums.

    Other formats have none, nor has what torch saves after `set_crc32_options(False)`. Raises OSError."""
    with copy.open("rb") as file:
        try:
            return all(map(_agrees, _files_in(file)))
        except _DAMAGED:
            return False


def _files_in(copy: BinaryIO) -> Iterator[IO[bytes]]:
    """Checkpoint files; a shard of a distributed checkpoint (.distcp) is no single zip file."""
    if not is_archive(copy):
        yield copy
        return
    with tarfile.open(fileobj=copy, mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and is_checkpoint_name(member.name.rpartition("/")[2]):
                yield content


def _agrees(file: IO[bytes]) -> bool:
    if file.read(4) != b"PK\x03\x04":
        return True
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        stored = [member for member in archive.infolist() if _is_stored(member)]
        if sum(member.file_size for member in stored) > size:
            return False  # they lie upon each other
        if any(member.CRC for member in stored):  # else torch was told to compute none
            for member in stored:
                _read(archive, member)
    return True


def _is_stored(member: zipfile.ZipInfo) -> bool:
    return member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raises BadZipFile where the content has another CRC-32."""
    with archive.open(member) as content:
        while content.read(_PIECE_BYTES):
            pass
