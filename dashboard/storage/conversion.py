"""How a downloaded checkpoint is converted: not at all, without its prefix, as safetensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any


@dataclass(frozen=True)
class Conversion:
    """The conversion that somebody asks for."""

    strip: bool = False
    safetensors: bool = False

    @property
    def is_as_saved(self) -> bool:
        """Whether the saved file can be sent as it is."""
        return not (self.strip or self.safetensors)

    @property
    def params(self) -> dict[str, Any]:
        """Query parameters of the download."""
        prefix: dict[str, Any] = {"prefix": "strip"} if self.strip else {}
        return prefix | ({"format": "safetensors"} if self.safetensors else {})

    @property
    def options(self) -> list[str]:
        """Options of the program that converts."""
        return ["--strip"] * self.strip + ["--safetensors"] * self.safetensors

    def file_name(self, name: str) -> str:
        """`last.pt` -> `last.no-prefix.safetensors`: easy to tell from the original."""
        path = PurePosixPath(name)
        suffix = FILE_SUFFIX if name.endswith(FILE_SUFFIX) else path.suffix
        stem = path.name.removesuffix(suffix)
        return f"{stem}{'.no-prefix' if self.strip else ''}{'.safetensors' if self.safetensors else suffix}"


FILE_SUFFIX = ".pth.tar"
"""Many scripts use this suffix for files of torch.save, which are not archives."""


def is_folder(name: str) -> bool:
    """Whether the checkpoint is a folder, stored as one archive."""
    return name.endswith(".tar") and not name.endswith(FILE_SUFFIX)
