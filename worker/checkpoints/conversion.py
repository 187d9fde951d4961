"""A conversion of a checkpoint file that can be written, or why there can be none; that of safetensors files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from worker.checkpoints.copies import copy_bytes
from worker.checkpoints.names import SafetensorsHeader, prefix_in


@dataclass(frozen=True)
class PlannedConversion:
    """A converted file that can be written."""

    size_bytes: int
    """Upper limit of the disk space that it needs."""
    write: Callable[[Path], Sequence[str]]
    """Overwrites an empty file; returns sentences about its content. Raises CannotConvert, OSError, RuntimeError."""


class CannotConvert(Exception):
    """The copy is impossible; the message says why in one sentence."""


def with_shorter_header(source: Path, header: SafetensorsHeader) -> PlannedConversion | None:
    """A copy with a new header alone: the tensors' bytes stay, whatever library knows their types.

    Raises CannotConvert."""
    prefix = prefix_in(header.names)
    if not prefix:
        return None
    shorter = {name.removeprefix(prefix): about for name, about in header.entries.items()}
    text = json.dumps(shorter, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    if len(text) > header.size_bytes:
        raise CannotConvert("Its header would become longer, which no header of safetensors' own does.")
    # Of the old length, so that the tensors stay aligned.
    begin = header.size_bytes.to_bytes(8, "little") + text.ljust(header.size_bytes)
    note = f"Names lost their prefix {prefix}"
    return PlannedConversion(source.stat().st_size, partial(_write_behind, begin, source, note))


def _write_behind(begin: bytes, source: Path, note: str, target: Path) -> list[str]:
    """Write the source with a different beginning of the same length."""
    with source.open("rb") as file, target.open("wb", buffering=0) as written:
        written.write(begin)
        size = os.fstat(file.fileno()).st_size - len(begin)
        if copy_bytes(file.fileno(), written.fileno(), size, len(begin), len(begin)) != size:
            raise CannotConvert("The checkpoint changed while it was read.")
    return [note]
