"""Safetensors: one file, or the files of a folder with or without an index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..dtypes import NAMES, facts_of, torch_dtype
from ..names import listed, plain_names, renaming_notes
from ..pieces import BytesPiece, PiecedSource, PiecedTensor
from ..sources import CheckpointRefused, TensorSource
from .indexes import indexed_files

SUFFIX = ".safetensors"
NO_INDEX = "The ranks' shards have no index: the files do not say how many ranks there were."
LONGEST_HEADER_BYTES = 100_000_000
"""Limit of the format."""
PLACES_OF_SHARDS = "DCP_SHARDING_INFO"
"""In the metadata of files that torch's HuggingFaceStorageWriter wrote from each rank: where each part begins."""


def recognize(path: Path) -> bool:
    """Whether it is such a file, or a folder with weights in such files."""
    if path.is_dir():
        return bool(_files(path))
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def open(path: Path) -> TensorSource:
    """Open the file or the folder's files. Raises CheckpointRefused, OSError."""
    index = indexed_files(path, SUFFIX) if path.is_dir() else None
    files = [path] if path.is_file() else _files(path)
    entries = [entry for file in files for entry in read_header(file)]
    if index:
        index.require_all(entry.name for entry in entries)
    plain = plain_names(dict.fromkeys(entry.name for entry in entries))
    pieces: dict[str, list[HeaderEntry]] = {}
    for entry in entries:
        pieces.setdefault(plain[entry.name], []).append(entry)
    pieced = {name: _pieced(name, found) for name, found in pieces.items()}
    notes = [NO_INDEX] if any(_OF_RANK.fullmatch(file.name) for file in files) and not index else []
    return PiecedSource(
        "safetensors", [*([index.path] if index else []), *files], pieced, [*notes, *renaming_notes(plain)]
    )


@dataclass(frozen=True)
class HeaderEntry:
    """What a header says of one tensor, or of a part of one."""

    name: str
    dtype: str
    piece: BytesPiece


def read_header(path: Path) -> list[HeaderEntry]:
    """Read a file's header. Raises CheckpointRefused if it is damaged, OSError."""
    try:
        return list(_entries(path))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointRefused(
            f"{path.name} has no valid header of safetensors: it is damaged, or was cut."
        ) from error


def read_metadata(path: Path) -> tuple[dict[str, Any], int]:
    """The header's JSON, and the offset of the first tensor. Raises ValueError, OSError."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, LONGEST_HEADER_BYTES)))
    if not isinstance(header, dict):
        raise ValueError("not an object")
    return header, 8 + length


def _entries(path: Path) -> Iterator[HeaderEntry]:
    header, begin = read_metadata(path)
    size = path.stat().st_size - begin
    shards = json.loads(header.pop("__metadata__", {}).get(PLACES_OF_SHARDS, "{}"))
    for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
        if about["dtype"] not in NAMES:
            raise CheckpointRefused(
                f"{name} is of type {about['dtype']}, which is not read here: it has no type in torch."
            )
        dtype, shape, (first, end) = NAMES[about["dtype"]], tuple(about["shape"]), about["data_offsets"]
        if not 0 <= first <= end <= size or end - first != facts_of(shape, torch_dtype(dtype)).nbytes:
            raise CheckpointRefused(f"{path.name} is cut or damaged: the bytes of {name} are not all in it.")
        offsets = shards[name]["saved_offsets"] if name in shards else [0] * len(shape)
        yield HeaderEntry(name, dtype, BytesPiece(path, begin + first, tuple(offsets), shape))


def _pieced(name: str, entries: Sequence[HeaderEntry]) -> PiecedTensor:
    """Raises CheckpointRefused if two files have the same tensor, or not all of it."""
    pieces = [entry.piece for entry in entries]
    if len({piece.offsets for piece in pieces}) < len(pieces):
        raise CheckpointRefused(
            f"{name} is in several files ({listed(piece.path.name for piece in pieces)}): remove one of them."
        )
    ends = [[begin + size for begin, size in zip(piece.offsets, piece.sizes, strict=True)] for piece in pieces]
    shape = [max(sizes) for sizes in zip(*ends, strict=True)]
    return PiecedTensor(name, facts_of(shape, torch_dtype(entries[0].dtype)), pieces)


# -- folders -----------------------------------------------------------------------------------

USUAL_FILES = tuple(
    f"{stem}{SUFFIX}" for stem in ("model", "pytorch_model", "diffusion_pytorch_model", "adapter_model")
)
_SHARD = re.compile(r".*-\d+-of-(?P<count>\d+)\.safetensors")
_OF_RANK = re.compile(r"shard-(?P<rank>\d+)-.*\.safetensors")


def _files(folder: Path) -> list[Path]:
    """The weights' files: as the index says, of a usual name, all shards, or the only one. Raises CheckpointRefused."""
    if index := indexed_files(folder, SUFFIX):
        return list(index.files)
    names = sorted(path.name for path in folder.glob(f"*{SUFFIX}") if path.is_file())
    usual = [name for name in USUAL_FILES if name in names]
    if usual:
        return [folder / usual[0]]
    of_ranks = {name: int(match["rank"]) for name in names if (match := _OF_RANK.fullmatch(name))}
    shards = {name: int(match["count"]) for name in names if (match := _SHARD.fullmatch(name)) and not of_ranks}
    there = len(shards or set(of_ranks.values()))
    expected = max((shards or of_ranks).values(), default=0)
    if there != expected:
        raise CheckpointRefused(f"{there} of {expected} shards are there: the others are missing.")
    return [folder / name for name in of_ranks or shards or (names if len(names) == 1 else ())]
