"""Tells from a checkpoint file's bytes and name whether it is complete, and its step; nothing is unpickled."""

from __future__ import annotations

import io
import os
import pickletools  # nosec B403: lists operations, executes none
import re
import struct
import time
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO

from domain.checkpoints.lfs_pointers import MOST_BYTES, WHAT, bytes_of_pointer
from worker.checkpoints.names import PickleNames, read_header, skip_legacy_header
from worker.node.regular_files import open_regular


class Completeness(Enum):
    """Whether a file has its end, by its bytes."""

    COMPLETE = auto()
    INCOMPLETE = auto()
    UNKNOWN = auto()
    """Its format has no end mark: it counts as complete once it is not written to for a while."""
    FOREIGN = auto()
    """Not a checkpoint, in spite of its name."""


def completeness(path: Path) -> Completeness:
    """The completeness by the end mark of the file's own format; an unreadable file is incomplete."""
    try:
        with open_regular(path) as file:
            return _completeness(path.suffix, file, os.fstat(file.fileno()).st_size)
    except OSError:
        return Completeness.INCOMPLETE


def what_is_missing(path: Path) -> str:
    """Why the file is incomplete, as the rest of a sentence about it."""
    try:
        with open_regular(path) as file:
            head, size = file.read(MOST_BYTES), os.fstat(file.fileno()).st_size
            if not size:
                return "it is empty"
            if bytes_of_pointer(head):
                return f"it is {WHAT}: run `git lfs pull` in the checkout that it is from"
            if path.suffix == ".safetensors":
                promised = _safetensors_bytes(file)
                return f"its header promises {promised} bytes" if promised else "its header is cut short"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return "its end record is missing" if head.startswith(b"PK") else "it ends too early"


_STEP = re.compile(
    r"(?:^|[^a-z])(?:global_?steps?|steps?|iter|iteration|checkpoint|ckpt)[_=-]?(\d{1,12})(?![\d.]*\d)(?!-of-)"
)


def step_of(name: str) -> int | None:
    """The step in a file's name, otherwise in its folder's: `step_00000120.pt`, `epoch=3-step=120.ckpt`."""
    for part in reversed(name.lower().split("/")[-2:]):
        if steps := _STEP.findall(part):
            return int(steps[-1])
    return None


def _completeness(suffix: str, file: BinaryIO, size: int) -> Completeness:
    if size == 0:
        return Completeness.INCOMPLETE
    head = file.read(MOST_BYTES)
    if bytes_of_pointer(head):
        return Completeness.INCOMPLETE
    if suffix == ".safetensors":
        return _yes(_safetensors_bytes(file) == size)
    if head.startswith(b"PK\x03\x04"):
        return _yes(_has_zip_end(file, size))
    if head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5":
        return _old_completeness(file, size)
    # data sets are called .bin, too
    return Completeness.FOREIGN if suffix == ".bin" else Completeness.UNKNOWN


def _yes(complete: bool) -> Completeness:
    return Completeness.COMPLETE if complete else Completeness.INCOMPLETE


_LEGACY_BYTES = 8 * 1024 * 1024
_LEGACY_S = 0.5
_ELEMENT_BYTES = {
    **dict.fromkeys(("ComplexDouble",), 16),
    **dict.fromkeys(("Double", "Long", "ComplexFloat"), 8),
    **dict.fromkeys(("Float", "Int", "QInt32"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Char", "Byte", "Bool", "Untyped", "QInt8", "QUInt8"), 1),
}
"""Name of a storage's class -> bytes of an element."""


def _old_completeness(file: BinaryIO, size: int) -> Completeness:
    """The completeness of torch's older files, which end with their last storage, and of plain pickles."""
    file.seek(0)
    head = io.BytesIO(file.read(_LEGACY_BYTES))
    try:
        if skip_legacy_header(head):
            end = _legacy_end(head, file)
            return Completeness.UNKNOWN if end < size else _yes(end == size)
        PickleNames(head, time.thread_time() + _LEGACY_S)
    except (ValueError, KeyError):
        is_cut_short = size <= _LEGACY_BYTES and not head.read(1)
        return Completeness.INCOMPLETE if is_cut_short else Completeness.UNKNOWN
    except struct.error:  # the length of a storage is not all there
        return Completeness.INCOMPLETE
    return Completeness.UNKNOWN


def _legacy_end(head: io.BytesIO, file: BinaryIO) -> int:
    """The end of the last storage. After the content come the storages' keys, then each with its length in elements.

    Raises ValueError, KeyError, struct.error on damage.
    """
    element_types = PickleNames(head, time.thread_time() + _LEGACY_S).storages
    keys = [argument for _, argument, _ in pickletools.genops(head) if isinstance(argument, str)]
    end = head.tell()
    for key in keys:
        file.seek(end)
        (elements,) = struct.unpack("<q", file.read(8))
        end += 8 + elements * _ELEMENT_BYTES[element_types[key]]
    return end


_ZIP_END = struct.Struct("<4s16xH")
_LONGEST_COMMENT = 65535


def _has_zip_end(file: BinaryIO, size: int) -> bool:
    """Whether the end record is there, which a zip's writer writes last: 22 bytes, and a comment up to the end."""
    file.seek(max(0, size - _ZIP_END.size - _LONGEST_COMMENT))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0:
        if at + _ZIP_END.size <= len(tail):
            _, comment_bytes = _ZIP_END.unpack_from(tail, at)
            if at + _ZIP_END.size + comment_bytes == len(tail):
                return True
        at = tail.rfind(b"PK\x05\x06", 0, at)
    return False


def _safetensors_bytes(file: BinaryIO) -> int | None:
    header = read_header(file)
    return header.file_bytes if header else None
