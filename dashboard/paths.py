"""Check what a user's path leads to; one that is too long or contains a NUL leads nowhere and raises nothing."""

from __future__ import annotations

import os
from pathlib import Path


def exists(path: str | Path) -> bool:
    """Whether there is such a file or folder on this machine."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: str | Path) -> bool:
    """Whether the path is a file."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | Path) -> bool:
    """Whether the path is a folder."""
    return os.path.isdir(path)  # noqa: PTH112
