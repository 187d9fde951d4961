"""Checkpoints whose tensors are put together from parts that stay in mapped files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path

import torch

from .dtypes import facts_of
from .sources import NONE_TIED, TensorFacts, TensorSource

Sample = tuple[tuple[slice, ...], torch.Tensor]
"""A part of a tensor, with its place in the whole."""


@dataclass(frozen=True)
class Assembly:
    """A tensor that is put together only when it is read."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]
    samples: Callable[[], Iterator[Sample]]
    """The first value of each part, which shows that it lies where it belongs."""

    @property
    def facts(self) -> TensorFacts:
        """Its facts, without its values."""
        return facts_of(self.shape, self.dtype)


def whole(tensor: torch.Tensor) -> Assembly:
    """Return the assembly of one tensor that is whole in a file."""
    plain = tensor.detach()
    return Assembly(tuple(tensor.shape), tensor.dtype, plain.contiguous, lambda: first_of((0,) * plain.dim(), plain))


def flat(parts: Sequence[torch.Tensor], shape: Sequence[int]) -> Assembly:
    """Return the assembly of a tensor whose values lie one after the other in flat parts, perhaps with padding last."""
    dtype, plain = parts[0].dtype, [part.detach() for part in parts]
    size_bytes = prod(shape) * dtype.itemsize

    def read() -> torch.Tensor:
        as_bytes = [part.contiguous().view(torch.uint8) for part in plain]  # torch joins bytes of every type
        return torch.cat(as_bytes)[:size_bytes].view(dtype).view(tuple(shape))

    def samples() -> Iterator[Sample]:
        ends = accumulate(part.numel() for part in plain)
        for part, end in zip(plain, ends, strict=True):
            if (begin := end - part.numel()) < prod(shape):
                yield from first_of(_index(begin, shape), part)

    return Assembly(tuple(shape), dtype, read, samples)


def first_of(begin: Sequence[int], part: torch.Tensor) -> Iterator[Sample]:
    """Yield the first value of a part that begins at these indices of the whole."""
    if part.numel():
        place = tuple(slice(index, index + 1) for index in begin)
        yield place, part.flatten()[0].view([1] * len(place))


def _index(at: int, shape: Sequence[int]) -> list[int]:
    """Return the indices of the value at this place of a tensor in row-major order."""
    strides = [prod(shape[dim + 1 :]) for dim in range(len(shape))]
    return [at // stride % size for stride, size in zip(strides, shape, strict=True)]


class MappedSource(TensorSource):
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

    def samples(self, name: str) -> Iterator[Sample]:
        """Yield single values of it, each from where its part begins."""
        return self._assemblies[name].samples()

    def close(self) -> None:
        """Let go of the mapped files."""
        self._assemblies.clear()
