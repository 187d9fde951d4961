"""A conversion of a checkpoint file that can be written, and why there can be none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class CannotConvert(Exception):
    """The copy is impossible; the message says why in one sentence."""


@dataclass(frozen=True)
class PlannedConversion:
    """A converted file that can be written."""

    size_bytes: int
    """Upper limit of the disk space that it needs."""
    write: Callable[[Path], Sequence[str]]
    """Overwrites an empty file; returns sentences about its content. Raises CannotConvert, OSError, RuntimeError."""
