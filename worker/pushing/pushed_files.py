"""The files that are pushed: those of the checkpoint, and the model card beside them."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from domain.checkpoint_use.model_card import CARD_NAME, is_unedited


@dataclass(frozen=True)
class PushedFile:
    """A file by its name at the target."""

    name: str
    content: Path | bytes

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def open(self) -> BinaryIO:
        """Open it for reading. Raises OSError."""
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")


def checkpoint_files(source: Path, name: str) -> list[PushedFile]:
    """Return a checkpoint's files, by name: all in its folder, or the single file under a name of its own.

    Links are left out: they may lead anywhere on the node. Raises OSError."""
    if not source.is_dir():
        return [PushedFile(name, source)]
    paths = sorted(path for path in _regular_files(source))
    return [PushedFile(path.relative_to(source).as_posix(), path) for path in paths]


def _regular_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        yield from (path for path in map(Path(parent).joinpath, names) if path.is_file() and not path.is_symlink())


LEFT_OUT = frozenset({".git", ".cache"})
"""Folders that a hub takes from nobody."""


def card_files(card: dict[str, Any], files: list[PushedFile], card_there: str | None) -> tuple[list[PushedFile], str]:
    """Return the model card with its pictures, or none and why: a person's card is never overwritten."""
    if not card:
        return [], ""
    if any(file.name == CARD_NAME for file in files):
        return [], f"The checkpoint has a {CARD_NAME} of its own, so Rankzero wrote no card."
    if card_there is not None and not is_unedited(card_there):
        return [], f"{CARD_NAME} was edited there, so it was left as it is."
    pictures = [PushedFile(name, base64.b64decode(content)) for name, content in card.get("pictures", {}).items()]
    return [PushedFile(CARD_NAME, str(card["text"]).encode()), *pictures], ""
