"""Tell the folders that one `SummaryWriter` makes for `add_scalars` and `add_hparams` from those of other writers."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePosixPath

from worker.streams.events import HPARAMS_FOLDER

HPARAMS = "hparams"
"""Stands for the folder of `add_hparams`, whose own name is the time of the call."""
_REPLACED = re.compile(r"[^-\w.]")
"""Characters of a tag that become `_`: the slash in a folder's name, others in tensorboardX's tags."""


def line_name(tag: str, folder: str) -> str | None:
    """Return `TAG/LINE` for a line of `add_scalars`, whose folder below its writer's is `TAG_LINE`; else None."""
    if not tag:
        return None
    flat = _REPLACED.sub("_", folder)
    begins = flat.startswith(f"{_REPLACED.sub('_', tag)}_") and len(folder) > len(tag) + 1
    return f"{tag}/{folder[len(tag) + 1 :]}" if begins else None


def is_of_hparams(folder: str) -> bool:
    """Whether a folder below a writer's is named by the time, as `add_hparams` names it."""
    return HPARAMS_FOLDER.fullmatch(folder) is not None


def outer_writer(directory: str, directories: Collection[str]) -> str | None:
    """Return the nearest directory around this one that has event files too; None if there is none."""
    parents = (str(parent) for parent in PurePosixPath(directory).parents)
    return next((parent for parent in parents if parent in directories), None)


def writer_and_tag(tag: str, directory: str, directories: Collection[str]) -> tuple[str, str]:
    """Return the directory of the writer that made this one, and the name that its series has there.

    For `add_hparams` it is the directory `hparams`; a directory that no other writer made stays as it is."""
    outer = outer_writer(directory, directories)
    if outer is None:
        return directory, tag
    folder = str(PurePosixPath(directory).relative_to(outer))
    if line := line_name(tag, folder):
        return outer, line
    return (f"{outer}/{HPARAMS}" if is_of_hparams(folder) else directory), tag
