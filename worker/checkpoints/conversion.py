"""Converts a checkpoint file: without a wrapper's prefix, as safetensors, or both."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

from worker.checkpoints.copies import copy_bytes
from worker.checkpoints.names import is_archive, prefix_in
from worker.checkpoints.planned_conversion import CannotConvert, PlannedConversion
from worker.checkpoints.safetensors_header import SafetensorsHeader, read_header

NO_PREFIX = "No prefix was found: the names are as they were saved."


def conversion_of(source: Path, *, strip: bool, safetensors: bool) -> PlannedConversion | str:
    """The file to write; one sentence if the checkpoint already has that form. Raises CannotConvert, OSError."""
    with source.open("rb") as file:
        is_folder, header = is_archive(file), read_header(file)
    if is_folder:
        raise CannotConvert(
            "A folder cannot be converted: its weights are files in the archive, so download it as it was saved."
        )
    if header is None:
        from worker.checkpoints import torch_files

        convert = torch_files.as_safetensors if safetensors else torch_files.without_prefix
        return convert(source, strip) or NO_PREFIX
    if not strip:
        return "It was saved as safetensors and is unchanged."
    return _with_shorter_header(source, header) or NO_PREFIX


def _with_shorter_header(source: Path, header: SafetensorsHeader) -> PlannedConversion | None:
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
