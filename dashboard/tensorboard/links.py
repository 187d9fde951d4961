"""A run's event files under their own names: a folder of links for TensorBoard to read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from domain.views import FileView

log = logging.getLogger("rankzero")
OWN_FOLDERS = ("work", "workdir")
"""Prefixes that the worker puts before paths below the working directory."""
LONGEST_PART_BYTES = 120
MOST_PARTS = 20


def is_event_file(file: FileView) -> bool:
    """Whether the name contains `tfevents`, which is the rule of TensorBoard and of the worker."""
    return "tfevents" in file.path.rpartition("/")[2] and not file.path.startswith("logs/")


def event_links(files: Iterable[FileView], nodes: int) -> dict[str, int]:
    """The link of each event file below TensorBoard's folder, with the file's id.

    Each attempt has a folder, and each node when there are several. A truncated file keeps its earlier generations."""
    links: dict[str, int] = {}
    for file in sorted(filter(is_event_file, files), key=lambda f: (f.attempt, f.node_rank, f.path, f.generation)):
        folders = [f"attempt {file.attempt}", *([f"node {file.node_rank}"] if nodes > 1 else [])]
        name = "/".join([*folders, *_parts(file.path)])
        if file.generation:
            name += f".{file.generation:06}"
        if name in links:  # names that differ only in characters that file names cannot have
            name += f".{file.id}"
        links[name] = file.id
    return links


def arrange(folder: Path, targets: Mapping[str, Path]) -> None:
    """Make the links below `folder` match `targets`; existing links stay untouched."""
    existing = {str(link.relative_to(folder)): link for link in folder.rglob("*") if link.is_symlink()}
    for name, link in existing.items():
        if name not in targets:
            link.unlink()
    for name, target in targets.items():
        if name not in existing and target.exists():
            try:
                (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (folder / name).symlink_to(target)
            except OSError as error:  # the same name is a file and a folder
                log.warning("TensorBoard does not show %s: %s", target.name, error)


def _parts(path: str) -> list[str]:
    """The path's components, each safe as a file name below the folder."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    if len(parts) > 1 and parts[0] in OWN_FOLDERS:
        parts = parts[1:]
    return [_part(part) for part in parts[-MOST_PARTS:]]


def _part(part: str) -> str:
    safe = "".join(c if c.isprintable() else "_" for c in part).encode("utf-8", "replace")
    return safe[-LONGEST_PART_BYTES:].decode("utf-8", "ignore")
