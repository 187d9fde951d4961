"""Verifies a copy by the checksums in it and computes its SHA-256: where it is large beside the trainings, which go
first."""

from __future__ import annotations

import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO

from domain.clock import SYSTEM_CLOCK, Clock
from worker.checkpoints import sums
from worker.checkpoints.names import is_archive
from worker.checkpoints.sums import Stretch
from worker.node.regular_files import open_regular
from worker.node.run_files import is_checkpoint_name

LARGE_BYTES = 16 * 1024 * 1024
"""A smaller copy is read sooner than a program starts."""
PATIENCE_S = 60.0
"""Longest time that trainings which use all cores may hold up a checkpoint."""
WRONG_CHECKSUM = "its content does not match the checksums in it: it was still being written, or is damaged"


class Examination:
    """The reading of one copy, which another program does with the lowest priority where that is worth it."""

    def __init__(self, copy: Path, *, beside: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        """`beside`: in another program if the copy is large. Raises OSError."""
        self._copy, self._stretches = copy, crc_stretches(copy)
        self._clock, self._give_up_at = clock, clock.now() + PATIENCE_S
        is_worth_it = beside and self._stretches is not None and copy.stat().st_size >= LARGE_BYTES
        self._program = self._started() if is_worth_it else None

    def is_over(self, wait_s: float = 0.0) -> bool:
        """Whether the result is there without more work, or must not wait any longer."""
        if self._program is None:
            return True
        try:
            self._program.wait(wait_s)
        except subprocess.TimeoutExpired:
            return self._clock.now() >= self._give_up_at
        return True

    def sha256(self) -> str | None:
        """The copy's SHA-256; None if its content differs from its checksums. Raises OSError.

        What the other program has not found out is found out at once, with all speed."""
        if self._stretches is None:
            return None
        program, self._program = self._program, None
        if program is not None:
            with program:  # waits for its end
                if program.poll() == 0 and program.stdout is not None:
                    return program.stdout.read().decode() or None
                program.kill()
        return sums.sha256_of(self._copy, self._stretches, lambda: None)

    def _started(self) -> subprocess.Popen[bytes] | None:
        """The program; None if it cannot be started. In a session of its own, which has a priority of its own."""
        command = [sys.executable, "-I", "-S", sums.__file__, str(self._copy)]
        try:
            program = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
                start_new_session=True,
            )  # fmt: skip
            assert program.stdin is not None
            with program.stdin:
                program.stdin.write(" ".join(map(str, chain.from_iterable(self._stretches or ()))).encode())
        except OSError:  # too little memory, or it has ended already: `sha256` does its work
            return None
        return program


# -- checksums in a copy -----------------------------------------------------------------------

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, NotImplementedError, EOFError, ValueError, struct.error)
_LOCAL_HEADER = struct.Struct("<4s22x2H")
"""Of a member of a zip file: the magic bytes, and the lengths of its name and of what else precedes its content."""


def crc_stretches(copy: Path) -> list[Stretch] | None:
    """The stretches of a zip file (the copy itself, or one in a folder's archive) that have a CRC-32; None where it is
    damaged.

    Other formats have none, nor do torch's files after `set_crc32_options(False)`. Raises OSError."""
    with open_regular(copy) as file:
        try:
            return [stretch for begin, content in _files_in(file) for stretch in _stretches_in(content, begin)]
        except _DAMAGED:
            return None


def _files_in(copy: BinaryIO) -> Iterator[tuple[int, IO[bytes]]]:
    """Yield the checkpoint files, each with its offset; a shard of a distributed checkpoint (.distcp) is no single zip
    file."""
    if not is_archive(copy):
        yield 0, copy
        return
    with tarfile.open(fileobj=copy, mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and is_checkpoint_name(member.name.rpartition("/")[2]):
                yield member.offset_data, content


def _stretches_in(file: IO[bytes], begin: int) -> list[Stretch]:
    """Raises what is in `_DAMAGED`."""
    if file.read(4) != b"PK\x03\x04":
        return []
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        stored = [member for member in archive.infolist() if _is_stored(member)]
    if sum(member.file_size for member in stored) > size:
        raise zipfile.BadZipFile("the members overlap")
    if not any(member.CRC for member in stored):  # torch computed none
        return []
    return [_stretch(file, member, begin) for member in stored]


def _is_stored(member: zipfile.ZipInfo) -> bool:
    return member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1


def _stretch(file: IO[bytes], member: zipfile.ZipInfo, begin: int) -> Stretch:
    file.seek(max(0, member.header_offset))  # a damaged one may lie before the file's beginning
    magic, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if magic != b"PK\x03\x04" or member.header_offset < 0:
        raise zipfile.BadZipFile("a member is not where it should be")
    start = begin + member.header_offset + _LOCAL_HEADER.size + name + extra
    return start, start + member.file_size, member.CRC
