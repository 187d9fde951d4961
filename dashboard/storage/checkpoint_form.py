"""The forms a checkpoint can be had in: as it was saved, without its prefix, as safetensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any


@dataclass(frozen=True)
class CheckpointForm:
    """How a checkpoint is wanted."""

    strip: bool = False
    safetensors: bool = False

    @property
    def is_as_saved(self) -> bool:
        """Nothing has to be written."""
        return not (self.strip or self.safetensors)

    @property
    def params(self) -> dict[str, Any]:
        """What is added to the address of the file."""
        wanted: dict[str, Any] = {"prefix": "strip"} if self.strip else {}
        return wanted | ({"format": "safetensors"} if self.safetensors else {})

    @property
    def options(self) -> list[str]:
        """For the program that writes it."""
        return ["--strip"] * self.strip + ["--safetensors"] * self.safetensors

    def file_name(self, name: str) -> str:
        """`last.pt` -> `last.no-prefix.safetensors`: told from the original at a glance."""
        path = PurePosixPath(name)
        suffix = FILE_SUFFIX if name.endswith(FILE_SUFFIX) else path.suffix
        stem = path.name.removesuffix(suffix)
        return f"{stem}{'.no-prefix' if self.strip else ''}{'.safetensors' if self.safetensors else suffix}"


FILE_SUFFIX = ".pth.tar"
"""What many scripts call a file of torch.save: it is no archive."""


def is_folder(name: str) -> bool:
    """Whether a checkpoint is a folder, on its way as one archive."""
    return name.endswith(".tar") and not name.endswith(FILE_SUFFIX)
