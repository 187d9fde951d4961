"""One view of every format: named tensors that are read one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

NONE_TIED: Mapping[str, str] = MappingProxyType({})


class CheckpointRefused(Exception):
    """The checkpoint cannot be read; the message says what it is, the rule, and what to do."""


class Failed(Exception):
    """The disk or the memory does not allow it, or what was written is wrong; the message says so and what to do."""


@dataclass(frozen=True)
class TensorFacts:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: str
    """As torch names it: float32, bfloat16, int64, bool, float8_e4m3fn."""
    nbytes: int


class TensorSource(Protocol):
    """An open checkpoint: the model's tensors by their plain names. Formats derive from it."""

    format: str
    """safetensors, torch, distributed checkpoint, DeepSpeed ZeRO 3, …"""
    files: Sequence[Path]
    """What is read: their digests are named in the result."""
    tensors: Mapping[str, TensorFacts]
    """In the order of the checkpoint."""
    tied: Mapping[str, str] = NONE_TIED
    """Names of one storage, where the format says so: a later name -> the first one. Both are in `tensors`."""
    notes: Sequence[str]
    """Sentences about what is left out or renamed."""

    def read(self, name: str) -> torch.Tensor:
        """Read one whole tensor onto the CPU, contiguous. Raises CheckpointRefused, OSError."""
        ...

    def parts(self, name: str) -> Iterator[torch.Tensor]:
        """Yield what holds a tensor's bytes in their order, each valid until the next. Raises as `read`, and Failed."""
        whole, facts = self.read(name), self.tensors[name]
        if (tuple(whole.shape), str(whole.dtype)) != (facts.shape, f"torch.{facts.dtype}"):
            raise Failed(
                f"{name} was read as {list(whole.shape)} of {whole.dtype}, but the checkpoint announces "
                f"{list(facts.shape)} of {facts.dtype}: it changed meanwhile, or is damaged."
            )
        yield whole

    def samples(self, name: str) -> Iterator[tuple[tuple[slice, ...], torch.Tensor]]:
        """Yield parts of a tensor, read again, another way where there is one: each with its place in the whole."""
        whole = self.read(name)
        yield (slice(None),) * whole.dim(), whole

    def close(self) -> None:
        """Close the files."""
        return
