"""Tells a checkpoint's format from its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .formats import distributed, safetensors_files, torch_files, zero
from .sources import Refused, Source


class Format(Protocol):
    """A module of `formats`."""

    def recognize(self, path: Path) -> bool:
        """Whether the file or folder is of this format, by names and first bytes alone. Raises OSError."""

    def open(self, path: Path) -> Source:
        """Open it. Raises Refused, OSError."""


FORMATS: Sequence[Format] = (zero, distributed, safetensors_files, torch_files)
"""Modules of `formats` in the order in which they are asked: the more special first."""


def open_source(path: Path) -> Source:
    """Open a checkpoint: a file, or an unpacked folder. Raises Refused, OSError."""
    for form in FORMATS:
        if form.recognize(path):
            return form.open(path)
    raise Refused(
        f"{path.name} is of no known format: known are safetensors, Hugging Face shards, files of torch.save, "
        "distributed checkpoints (DCP, FSDP2), Accelerate's folders and DeepSpeed's."
    )
