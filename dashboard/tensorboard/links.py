"""A run's event files under the names its script gave them: a folder of links for TensorBoard to read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from domain.views import FileView

log = logging.getLogger("rankzero")
OWN_FOLDERS = ("work", "workdir")
"""What the worker puts before the names of files below the working directory."""
LONGEST_PART_BYTES = 120
MOST_PARTS = 20


def is_event_file(file: FileView) -> bool:
    """TensorBoard's own rule, as the worker has it: `tfevents` anywhere in the name."""
    return "tfevents" in file.path.rpartition("/")[2] and not file.path.startswith("logs/")


def event_links(files: Iterable[FileView], nodes: int) -> dict[str, int]:
    """The name of each event file below TensorBoard's folder, and the file's id.

    Attempts are apart, nodes where there are several. A file that was begun anew keeps what it held before."""
    links: dict[str, int] = {}
    for file in sorted(
        filter(is_event_file, files), key=lambda f: (f.attempt, f.node_rank, f.path, f.generation)
    ):
        folders = [f"attempt {file.attempt}", *([f"node {file.node_rank}"] if nodes > 1 else [])]
        name = "/".join([*folders, *_parts(file.path)])
        if file.generation:
            name += f".{file.generation:06}"
        if name in links:  # names that differ only in what no file name can hold
            name += f".{file.id}"
        links[name] = file.id
    return links


def arrange(folder: Path, wanted: Mapping[str, Path]) -> None:
    """Make the links below `folder` those that are wanted; what is there already stays as it is."""
    present = {str(link.relative_to(folder)): link for link in folder.rglob("*") if link.is_symlink()}
    for name, link in present.items():
        if name not in wanted:
            link.unlink()
    for name, target in wanted.items():
        if name not in present and target.exists():
            try:
                (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (folder / name).symlink_to(target)
            except OSError as error:  # one name is a file here and a folder there
                log.warning("TensorBoard does not show %s: %s", target.name, error)


def _parts(path: str) -> list[str]:
    """The path's parts, each fit to be the name of a file below the folder and nowhere else."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    if len(parts) > 1 and parts[0] in OWN_FOLDERS:
        parts = parts[1:]
    return [_part(part) for part in parts[-MOST_PARTS:]]


def _part(part: str) -> str:
    kept = "".join(c if c.isprintable() else "_" for c in part).encode("utf-8", "replace")
    return kept[-LONGEST_PART_BYTES:].decode("utf-8", "ignore")
