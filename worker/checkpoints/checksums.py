"""Whether a copy is what its writer meant: the CRC-32 of every member of a zip file, read once, in flat memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from worker.checkpoints.keys import archive_files, is_archive
from worker.checkpoints.layout import Region, Unreadable, content_of, zip_members
from worker.checkpoints.pickle_reader import Limits
from worker.node.run_files import is_checkpoint_name

_PIECE_BYTES = 1024 * 1024
_LIMITS = Limits(pickle_bytes=0, directory_bytes=128 * 1024 * 1024, operations=0, seconds=0)
"""Room for the names of a million storages."""
WRONG_SUM = "its content does not agree with the checksums in it: it was still being written, or is damaged"


def agrees_with_its_sums(copy: Path) -> bool:
    """False when a zip file (the copy itself, or one in a folder's archive) differs from its own checksums.

    Other formats have none, nor has what torch saves after `set_crc32_options(False)`. Raises OSError."""
    with copy.open("rb") as file:
        whole = Region.of(file.fileno())
        try:
            return all(map(_agrees, _files_in(whole)))
        except Unreadable:
            return False


def _files_in(whole: Region) -> Iterator[Region]:
    """Checkpoint files; a shard of a distributed checkpoint (.distcp) is no single zip file."""
    if not is_archive(whole):
        yield whole
        return
    for name, region in archive_files(whole):
        if is_checkpoint_name(name.rpartition("/")[2]):
            yield region


def _agrees(whole: Region) -> bool:
    if whole.read_up_to(0, 4) != b"PK\x03\x04":
        return True
    stored = [member for member in zip_members(whole, _LIMITS) if member.is_stored]
    if sum(member.size for member in stored) > whole.size:
        return False  # they lie upon each other
    if not any(member.crc for member in stored):
        return True  # torch was told not to reckon them
    return all(_crc(content_of(whole, member)) == member.crc for member in stored)


def _crc(region: Region) -> int:
    crc = at = 0
    while at < region.size:
        piece = region.read(at, min(_PIECE_BYTES, region.size - at))
        crc, at = zlib.crc32(piece, crc), at + len(piece)
    return crc
