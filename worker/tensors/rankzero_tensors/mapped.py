"""Checkpoints whose tensors are put together from parts that stay in mapped files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .dtypes import facts_of
from .sources import NONE_TIED, Source, TensorFacts


@dataclass(frozen=True)
class Assembly:
    """A tensor that is put together only when it is read."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]

    @property
    def facts(self) -> TensorFacts:
        """Its facts, without its values."""
        return facts_of(self.shape, self.dtype)


def whole(tensor: torch.Tensor) -> Assembly:
    """Return the assembly of one tensor that is whole in a file."""
    return Assembly(tuple(tensor.shape), tensor.dtype, tensor.detach().contiguous)


def flat(parts: Sequence[torch.Tensor], shape: Sequence[int]) -> Assembly:
    """Return the assembly of a tensor whose values lie one after the other in flat parts, perhaps with padding last."""
    dtype = parts[0].dtype
    size_bytes = torch.Size(shape).numel() * dtype.itemsize

    def read() -> torch.Tensor:
        as_bytes = [part.detach().contiguous().view(torch.uint8) for part in parts]  # torch joins bytes of every type
        return torch.cat(as_bytes)[:size_bytes].view(dtype).view(tuple(shape))

    return Assembly(tuple(shape), dtype, read)


class MappedSource(Source):
    """A checkpoint of such tensors."""

    def __init__(
        self,
        format: str,
        files: Sequence[Path],
        assemblies: Mapping[str, Assembly],
        notes: Sequence[str],
        tied: Mapping[str, str] = NONE_TIED,
    ) -> None:
        self.format, self.files, self.notes, self.tied = format, files, notes, tied
        self.tensors = {name: assembly.facts for name, assembly in assemblies.items()}
        self._assemblies = dict(assemblies)

    def read(self, name: str) -> torch.Tensor:
        """Put a tensor together."""
        return self._assemblies[name].read()

    def close(self) -> None:
        """Let go of the mapped files."""
        self._assemblies.clear()
