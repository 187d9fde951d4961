"""One view of every format: named tensors that are read one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Refused(Exception):
    """The checkpoint cannot be read; the message says what it is, the rule, and what to do."""


@dataclass(frozen=True)
class TensorFacts:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: str
    """As safetensors' headers name it without torch: float32, bfloat16, int64, bool, float8_e4m3fn."""
    nbytes: int


class Source(Protocol):
    """An open checkpoint: the model's tensors by their plain names."""

    format: str
    """safetensors, torch, distributed checkpoint, DeepSpeed ZeRO 3, …"""
    files: Sequence[Path]
    """What is read: their digests are named in the result."""
    tensors: Mapping[str, TensorFacts]
    """In the order of the checkpoint."""
    notes: Sequence[str]
    """Sentences about what is left out or renamed."""

    def read(self, name: str) -> torch.Tensor:
        """Read one whole tensor onto the CPU, contiguous. Raises Refused, OSError."""

    def close(self) -> None:
        """Close the files."""


def open_source(path: Path) -> Source:
    """Open a checkpoint: a file, or an unpacked folder. Raises Refused, OSError."""
    raise Refused(f"{path.name} is of no known format.")
