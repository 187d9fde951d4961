"""Proves that merged files hold what the shards hold: shapes, types, sums of all bytes, and samples read again."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .dtypes import facts_of, torch_dtype
from .formats.safetensors_files import HeaderEntry, read_header
from .memory import bytes_of, fill, open_file, strips
from .sources import Failed, TensorFacts, TensorSource

SAMPLED_TENSORS = 16


def prove(
    source: TensorSource,
    tensors: Mapping[str, TensorFacts],
    sums: Mapping[str, int],
    files: Sequence[Path],
    done: Callable[[str, int], None],
) -> dict[str, Any]:
    """Read the files again and compare them with what was read from the checkpoint; count what was equal.

    Raises Failed where something differs, OSError."""
    entries = {entry.name: entry for path in files for entry in read_header(path)}
    _require_facts(entries, tensors)
    _require_sums(entries, tensors, sums, done)
    return {
        "tensors": len(entries),
        "sums": {"method": "crc32", "equal": len(sums)},
        "samples": _equal_samples(source, entries),
    }


def _require_facts(entries: Mapping[str, HeaderEntry], tensors: Mapping[str, TensorFacts]) -> None:
    written = {name: facts_of(entry.piece.sizes, torch_dtype(entry.dtype)) for name, entry in entries.items()}
    for name in tensors.keys() | written.keys():
        if written.get(name) != tensors.get(name):
            raise Failed(f"{name} has another shape or type in the merged file: nothing was kept. {_ADVICE}")


def _require_sums(
    entries: Mapping[str, HeaderEntry],
    tensors: Mapping[str, TensorFacts],
    sums: Mapping[str, int],
    done: Callable[[str, int], None],
) -> None:
    for name, entry in entries.items():
        if _crc_of(entry, tensors[name].nbytes) != sums[name]:
            raise Failed(f"{name} was not written as it was read: nothing was kept. {_ADVICE}")
        done(name, tensors[name].nbytes)


def _equal_samples(source: TensorSource, entries: Mapping[str, HeaderEntry]) -> dict[str, int]:
    """Compare parts of some tensors, read again from the shards, with those in the merged file."""
    names = list(entries)[:: max(1, len(entries) // SAMPLED_TENSORS)]
    parts = size = 0
    for name in names:
        for place, part in source.samples(name):
            if bytes_of(_part(entries[name], place).contiguous()) != bytes_of(part.contiguous()):
                raise Failed(f"A part of {name} differs from the shards: nothing was kept. {_ADVICE}")
            parts, size = parts + 1, size + part.nbytes
    return {"tensors": len(names), "parts": parts, "bytes": size}


def _crc_of(entry: HeaderEntry, count: int) -> int:
    crc = 0
    for strip in strips(entry.piece.path, entry.piece.at, count):
        crc = zlib.crc32(bytes_of(strip), crc)
    return crc


def _part(entry: HeaderEntry, place: tuple[slice, ...]) -> torch.Tensor:
    """Read a part of a merged tensor: the rows that have it, and of these what is asked for."""
    dtype = torch_dtype(entry.dtype)
    if not place:
        rows = torch.empty((), dtype=dtype)
        entry.piece.fill(rows)
        return rows
    first, *others = entry.piece.sizes
    begin, end, _ = place[0].indices(first)
    rows = torch.empty((end - begin, *others), dtype=dtype)
    with open_file(entry.piece.path) as file:
        fill(file, entry.piece.at + begin * math.prod(others) * dtype.itemsize, rows)
    return rows[(slice(None), *place[1:])]


_ADVICE = "Merge again; if it happens twice, check the node's disk and memory."
