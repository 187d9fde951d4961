"""The header of a safetensors file, read without the library, which a node may lack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

from domain.text.json_values import parse_json

LONGEST_BYTES = 100_000_000
"""Limit of the format."""


@dataclass(frozen=True)
class SafetensorsHeader:
    """What a safetensors file begins with: eight bytes of length, and a JSON object of that many bytes."""

    size_bytes: int
    """Length of the JSON object."""
    entries: dict[str, Any]
    """Name -> data type, shape and place of each tensor, and the file's own `__metadata__`."""

    @property
    def names(self) -> list[str]:
        """The tensors' names."""
        return [name for name in self.entries if name != "__metadata__"]

    @property
    def file_bytes(self) -> int | None:
        """The size of the whole file; None if the header does not say it."""
        try:
            ends = [self.entries[name]["data_offsets"][1] for name in self.names]
            return int(8 + self.size_bytes + max(ends, default=0))
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            return None


def read_header(file: BinaryIO) -> SafetensorsHeader | None:
    """The header at the file's beginning; None where there is none, or none that is whole."""
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if file.read(1) != b"{":
        return None
    text = b"{" + file.read(min(length, LONGEST_BYTES) - 1)
    try:
        entries = parse_json(text) if len(text) == length else None
    except ValueError:
        return None
    return SafetensorsHeader(length, entries) if isinstance(entries, dict) else None
