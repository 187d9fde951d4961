"""Tensors that are saved in pieces: each piece knows its place in the whole, and where its bytes are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from .dtypes import torch_dtype
from .memory import fill, open_file, strips
from .sources import CheckpointRefused, TensorFacts, TensorSource

Place = tuple[slice, ...]


class ShardPiece(Protocol):
    """A rectangular part of a tensor."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where it begins in the whole."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def path(self) -> Path:
        """The file that holds it."""

    def find(self) -> int | None:
        """The offset of its bytes in the file, if they lie there in order. Raises OSError."""

    def fill(self, target: torch.Tensor) -> None:
        """Read it into its place in the whole. Raises CheckpointRefused, OSError."""

    def sample(self, dtype: torch.dtype) -> torch.Tensor:
        """Read it another way, of a large one its first rows. Raises CheckpointRefused, OSError."""


@dataclass(frozen=True)
class BytesPiece:
    """A piece whose elements lie one after another in a file."""

    path: Path
    at: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def find(self) -> int:
        """The offset of its bytes."""
        return self.at

    def fill(self, target: torch.Tensor) -> None:
        """Read it into its place in the whole. Raises CheckpointRefused, OSError."""
        with open_file(self.path) as file:
            fill(file, self.at, target)

    def sample(self, dtype: torch.dtype) -> torch.Tensor:
        """Read its first rows through Python's own bytes."""
        first, *others = self.sizes or (1,)
        row_bytes = math.prod(others) * dtype.itemsize
        rows = min(first, max(1, SAMPLE_BYTES // row_bytes))
        with self.path.open("rb") as file:
            file.seek(self.at)
            data = bytearray(file.read(rows * row_bytes))
        return torch.frombuffer(data, dtype=dtype).reshape((rows, *others) if self.sizes else ())


@dataclass(frozen=True)
class PiecedTensor:
    """A tensor and its pieces. Raises CheckpointRefused if they do not make up the whole."""

    name: str
    facts: TensorFacts
    pieces: Sequence[ShardPiece]

    def __post_init__(self) -> None:
        pieces = {piece.offsets: piece for piece in self.pieces if math.prod(piece.sizes)}
        ends = [map(sum, zip(piece.offsets, piece.sizes, strict=True)) for piece in pieces.values()]
        inside = all(end <= size for end_of in ends for end, size in zip(end_of, self.facts.shape, strict=True))
        count = sum(math.prod(piece.sizes) for piece in pieces.values())
        if not inside or count != math.prod(self.facts.shape):
            raise CheckpointRefused(
                f"The pieces of {self.name} do not make up its shape {list(self.facts.shape)}: a rank's file is "
                "missing, or belongs to another save."
            )
        object.__setattr__(self, "pieces", tuple(pieces.values()))


class PiecedSource(TensorSource):
    """A checkpoint of pieced tensors."""

    def __init__(
        self, form: str, files: Sequence[Path], pieced: Mapping[str, PiecedTensor], notes: Sequence[str]
    ) -> None:
        self.format, self.files, self.notes = form, files, notes
        self.tensors = {name: tensor.facts for name, tensor in pieced.items()}
        self._pieced = pieced

    def read(self, name: str) -> torch.Tensor:
        """Read each piece into its place. Raises CheckpointRefused, OSError."""
        facts = self.tensors[name]
        whole = torch.empty(facts.shape, dtype=torch_dtype(facts.dtype))
        for piece in self._pieced[name].pieces:
            piece.fill(whole[_place(piece.offsets, piece.sizes)])
        return whole

    def parts(self, name: str) -> Iterator[torch.Tensor]:
        """Read rows of pieces through a little memory, unless they are not saved as rows."""
        facts, pieces = self.tensors[name], sorted(self._pieced[name].pieces, key=lambda piece: piece.offsets)
        found = [piece.find() for piece in pieces if piece.sizes[1:] == facts.shape[1:]]
        if len(found) < len(pieces) or None in found:
            yield from super().parts(name)
            return
        item_bytes = torch_dtype(facts.dtype).itemsize
        for piece, at in zip(pieces, found, strict=True):
            yield from strips(piece.path, at or 0, math.prod(piece.sizes) * item_bytes)

    def samples(self, name: str) -> Iterator[tuple[Place, torch.Tensor]]:
        """Yield some pieces, or their first rows, read another way."""
        dtype = torch_dtype(self.tensors[name].dtype)
        pieces = self._pieced[name].pieces
        for piece in pieces[:: max(1, len(pieces) // MOST_PIECES)]:
            part = piece.sample(dtype)
            yield _place(piece.offsets, part.shape), part


SAMPLE_BYTES = 4 * 1024 * 1024
"""About the most bytes of a piece that are read again."""
MOST_PIECES = 4
"""About as many pieces of a tensor are read again."""


def _place(offsets: Sequence[int], sizes: Sequence[int]) -> Place:
    return tuple(slice(begin, begin + size) for begin, size in zip(offsets, sizes, strict=True))
