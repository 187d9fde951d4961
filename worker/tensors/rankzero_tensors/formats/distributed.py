"""Folders of torch.distributed.checkpoint (DCP): FSDP2, and what torchtitan, Lightning and others write with it."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..dtypes import facts_of
from ..memory import open_file
from ..model_part import USUAL_NAMES, Keys, is_other, model_part
from ..names import listed, plain_names, renaming_notes
from ..pieces import SAMPLE_BYTES, BytesPiece, PiecedSource, PiecedTensor
from ..sources import CheckpointRefused, TensorFacts, TensorSource
from .dcp_metadata import read_metadata
from .saved_tensors import find_bytes

METADATA = ".metadata"


def recognize(path: Path) -> bool:
    """Whether it is a folder with `.metadata`, or with one folder of the model's that has it."""
    return path.is_dir() and bool(_folders(path))


def open(path: Path) -> TensorSource:
    """Open the folder. Raises CheckpointRefused, OSError."""
    folders = _folders(path)
    if len(folders) > 1:
        raise CheckpointRefused(
            f"{path.name} contains several checkpoints ({listed(folder.name for folder in folders)}): name one."
        )
    [folder] = folders
    metadata = read_metadata(folder / METADATA)
    tensors = {name: saved for name, saved in metadata.state_dict_metadata.items() if hasattr(saved, "chunks")}
    part = model_part(paths := _paths(tensors, metadata.planner_data))
    saved_names = {name: part.names[keys] for keys, name in paths.items() if keys in part.names}
    plain = plain_names(saved_names.values())
    places = _places(folder, metadata.storage_data)
    pieced = {plain[name]: _pieced(plain[name], key, tensors[key], places) for key, name in saved_names.items()}
    return PiecedSource("distributed checkpoint", _files(folder, pieced), pieced, [*part.notes, *renaming_notes(plain)])


def _folders(path: Path) -> list[Path]:
    """The folder itself, or those in it that are not an optimizer's."""
    if (path / METADATA).is_file():
        return [path]
    inner = sorted(child.parent for child in path.glob(f"*/{METADATA}"))
    return [folder for folder in inner if not is_other(folder.name)]


def _files(folder: Path, pieced: Mapping[str, PiecedTensor]) -> list[Path]:
    pieces = (piece for tensor in pieced.values() for piece in tensor.pieces)
    return [folder / METADATA, *dict.fromkeys(piece.path for piece in pieces if isinstance(piece, SavedPiece))]


def _paths(tensors: Mapping[str, Any], planned: Any) -> dict[Keys, str]:
    """The keys that lead to each tensor -> its name in the checkpoint.

    Where the planner noted none, a name that begins as a model's or an optimizer's dictionary is divided there."""
    planned = planned if isinstance(planned, dict) else {}
    return {tuple(planned.get(name) or _divided(name)): name for name in tensors}


def _divided(name: str) -> Keys:
    first, _, others = name.partition(".")
    return (first, others) if others and (first in USUAL_NAMES or is_other(first)) else (name,)


# -- pieces ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedPiece:
    """A piece that torch.save wrote into a file of many."""

    path: Path
    begin: int
    length: int
    offsets: tuple[int, ...]
    facts: TensorFacts
    """Of the piece."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its shape."""
        return self.facts.shape

    def find(self) -> int | None:
        """The offset of its bytes; None if it is not saved plainly."""
        with open_file(self.path) as file:
            return find_bytes(file, self.begin, self.length, self.facts)

    def fill(self, target: torch.Tensor) -> None:
        """Read its bytes into their place, or have torch load it if it is not saved plainly."""
        if (at := self.find()) is not None:
            BytesPiece(self.path, at, self.offsets, self.sizes).fill(target)
        else:
            target.copy_(self._loaded())

    def sample(self, dtype: torch.dtype) -> torch.Tensor:
        """Have torch load it, or Python read the first rows of a large one."""
        if self.length > SAMPLE_BYTES and (at := self.find()) is not None:
            return BytesPiece(self.path, at, self.offsets, self.sizes).sample(dtype)
        return self._loaded().contiguous()

    def _loaded(self) -> torch.Tensor:
        """Raises CheckpointRefused if it is not the piece that the metadata describes, OSError."""
        with self.path.open("rb") as file:
            file.seek(self.begin)
            data = io.BytesIO(file.read(self.length))
        try:
            tensor = torch.load(data, weights_only=True, map_location="cpu")
        except Exception as error:  # torch raises many kinds
            raise CheckpointRefused(f"A part of {self.path.name} is damaged, or is not saved by torch.save.") from error
        if not isinstance(tensor, torch.Tensor) or facts_of(tensor.shape, tensor.dtype) != self.facts:
            raise CheckpointRefused(
                f"A part of {self.path.name} is not the tensor that .metadata describes: another save's?"
            )
        return tensor.detach()


@dataclass(frozen=True)
class SavedPlace:
    """A part of a file."""

    path: Path
    begin: int
    length: int
    transforms: tuple[str, ...]
    """Names of the extensions that compressed it."""


Places = Mapping[tuple[str, tuple[int, ...]], SavedPlace]
"""Name and offsets of each piece -> its part of a file."""


def _places(folder: Path, storage: Mapping[Any, Any]) -> Places:
    """Name and offsets of each piece -> its part of a file. Raises CheckpointRefused if a file is missing."""
    places = {
        (index.fqn, tuple(index.offset or ())): SavedPlace(
            folder / info.relative_path,
            info.offset,
            info.length,
            tuple(getattr(info, "transform_descriptors", None) or ()),
        )
        for index, info in storage.items()
    }
    names = {place.path.name for place in places.values() if not _is_inside(place.path, folder)}
    if names:
        raise CheckpointRefused(
            f"{listed(sorted(names))} of {folder.name} are missing: a rank's files were not saved here."
        )
    return places


def _is_inside(path: Path, folder: Path) -> bool:
    return path.parent == folder and path.is_file()


def _pieced(name: str, key: str, saved: Any, places: Places) -> PiecedTensor:
    dtype = saved.properties.dtype
    return PiecedTensor(name, facts_of(saved.size, dtype), list(_pieces(name, key, saved.chunks, dtype, places)))


def _pieces(name: str, key: str, chunks: Any, dtype: torch.dtype, places: Places) -> Iterator[SavedPiece]:
    for chunk in chunks:
        place = places.get((key, tuple(chunk.offsets)))
        if place is None and math.prod(chunk.sizes):
            raise CheckpointRefused(f"A piece of {name} is in no file: a rank did not save it.")
        if place is not None and place.transforms:
            raise CheckpointRefused(f"{name} is compressed ({listed(place.transforms)}): save without extensions.")
        if place is not None:
            yield SavedPiece(place.path, place.begin, place.length, tuple(chunk.offsets), facts_of(chunk.sizes, dtype))
