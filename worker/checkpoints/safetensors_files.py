"""Reads the header of a safetensors file, and replaces it where its names have a prefix."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from domain.text.json_values import parse_json
from worker.checkpoints.converted_copy import CannotConvert, Conversion
from worker.checkpoints.copies import copy_bytes
from worker.checkpoints.names import prefix_in

LONGEST_HEADER = 100_000_000
"""Limit of the safetensors format in bytes."""


def header_of(source: Path) -> dict[str, Any] | None:
    """The header; None if the file is no safetensors file. Raises ValueError."""
    with source.open("rb") as file:
        head = file.read(9)
        if head[8:] != b"{":
            return None
        file.seek(8)
        text = file.read(min(_header_bytes(head), LONGEST_HEADER))
    if len(text) != _header_bytes(head):
        raise ValueError("its header is too long, or cut short")
    try:
        header: dict[str, Any] = parse_json(text)
    except ValueError:
        raise ValueError("its header is not JSON") from None
    return header


def _header_bytes(head: bytes) -> int:
    return int.from_bytes(head[:8], "little")


def with_shorter_header(source: Path, header: dict[str, Any]) -> Conversion | None:
    """A copy with a new header alone: the tensors' bytes stay, whatever library knows their types.

    Raises CannotConvert."""
    prefix = prefix_in(name for name in header if name != "__metadata__")
    if not prefix:
        return None
    with source.open("rb") as file:
        length = file.read(8)
    shorter = {name.removeprefix(prefix): about for name, about in header.items()}
    text = json.dumps(shorter, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    begin = length + text.ljust(_header_bytes(length))  # so that the tensors stay aligned
    if len(begin) != 8 + _header_bytes(length):
        raise CannotConvert("Its header would become longer, which no header of safetensors' own does.")
    note = f"Names lost their prefix {prefix}"
    return Conversion(source.stat().st_size, partial(_write_behind, begin, source, note))


def _write_behind(begin: bytes, source: Path, note: str, target: Path) -> list[str]:
    """Write the source with a different beginning of the same length."""
    with source.open("rb") as file, target.open("wb", buffering=0) as written:
        written.write(begin)
        size = os.fstat(file.fileno()).st_size - len(begin)
        if copy_bytes(file.fileno(), written.fileno(), size, len(begin), len(begin)) != size:
            raise CannotConvert("The checkpoint changed while it was read.")
    return [note]
