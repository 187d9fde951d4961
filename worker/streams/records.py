"""The framing of event files (TFRecord): lengths, checksums, and the next record after damage."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from google_crc32c import value as crc32c

HEADER = struct.Struct("<QI")
"""A record: length (8 bytes), masked CRC-32C of these 8, the data, masked CRC-32C of the data."""
CHECKSUM = struct.Struct("<I")
AROUND_BYTES = HEADER.size + CHECKSUM.size
MAX_RECORD_BYTES = 64 * 1024 * 1024
"""A longer record (a video, a graph) holds no scalar worth its memory: it is skipped."""
_MASK_DELTA = 0xA282EAD8
_NOT_ZERO = re.compile(rb"[^\0]")
_UPPER_LENGTH = bytes(4)
"""The upper half of a length: zero, because no record of interest has more than 4 GiB."""


Why = Literal["damaged", "unfinished"]


@dataclass(frozen=True)
class Gap:
    """Bytes of an event file that gave no points but may have held some."""

    start: int
    end: int
    why: Why = "damaged"


def join(gaps: Sequence[Gap]) -> list[Gap]:
    """Merge adjacent gaps, keeping their order."""
    joined: list[Gap] = []
    for gap in gaps:
        if joined and joined[-1].end == gap.start:
            gap = Gap(joined.pop().start, gap.end, gap.why)
        joined.append(gap)
    return joined


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C rotated and offset as TFRecord files store it."""
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def has_header(buffer: bytes, position: int) -> bool:
    """Whether the bytes at `position` are a length followed by its valid checksum."""
    length_crc: int = HEADER.unpack_from(buffer, position)[1]
    return masked_crc(buffer[position : position + 8]) == length_crc


def next_header(buffer: bytes, begin: int) -> int | None:
    """Return the position of the next record at or after `begin`: a valid length of at most `MAX_RECORD_BYTES`."""
    upper = buffer.find(_UPPER_LENGTH, begin + 4)
    while upper != -1 and upper + 8 <= len(buffer):
        position = upper - 4
        if not any(buffer[position : position + HEADER.size]):  # a hole: skip all of its zeros at once
            nonzero = _NOT_ZERO.search(buffer, upper)
            if nonzero is None:
                return None
            upper = max(upper, nonzero.start() - 8)
        elif HEADER.unpack_from(buffer, position)[0] <= MAX_RECORD_BYTES and has_header(buffer, position):
            return position
        upper = buffer.find(_UPPER_LENGTH, upper + 1)
    return None
