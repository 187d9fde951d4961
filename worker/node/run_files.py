"""Which files below a run's directories count, and what they are called on the server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

FileKey = tuple[int, int, int]
"""(inode, size, mtime_ns): a file whose key did not change was not written to."""
Listing = Mapping[str, Sequence[int]]
"""Absolute path -> file key; survives a round trip through JSON."""

MAX_DEPTH = 16
MAX_ENTRIES = 500_000
_RUN_DIRECTORY = re.compile(r"(?P<data>.*)/runs/[a-z0-9]{10}/attempts/\d+/node\d+")


Entries = Iterator[os.DirEntry[str]]


def walk_files(root: Path, wanted: Callable[[str], bool], prune: Path | None = None) -> Entries:
    """Plain files below `root` whose name is `wanted`; no links, no hidden folders, nothing in `prune`."""
    entries_left = MAX_ENTRIES
    pending = [(str(root), 0)]
    while pending and entries_left > 0:
        directory, depth = pending.pop()
        for entry in _entries(directory):
            entries_left -= 1
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH and entry.path != str(prune) and not entry.name.startswith("."):
                    pending.append((entry.path, depth + 1))
            elif wanted(entry.name) and entry.is_file(follow_symlinks=False):
                yield entry


def remember_existing(root: Path) -> dict[str, FileKey]:
    """What already lies below `root` before an attempt starts: none of it is the attempt's own."""
    return {entry.path: key for entry in walk_files(root, counts) if (key := entry_key(entry)) is not None}


def counts(name: str) -> bool:
    """Whether a file of this name is one that the worker takes to the server, alone or in its folder."""
    return is_event_file(name) or is_checkpoint_name(name) or name.endswith(".distcp")


def is_event_file(name: str) -> bool:
    """TensorBoard's own rule: `tfevents` anywhere in the name."""
    return "tfevents" in name


CHECKPOINT_SUFFIXES = (".pt", ".pth", ".pth.tar", ".ckpt", ".bin", ".safetensors")
"""`.pth.tar` is what many scripts call a file of torch.save, after torch's first format."""
_TEMPORARY = re.compile(r"\.(tmp|temp|part|partial|incomplete|swp)|[~]$|^tmp", re.IGNORECASE)


def is_checkpoint_name(name: str) -> bool:
    """A checkpoint's suffix, and not the name of a file on its way to another name."""
    return name.endswith(CHECKPOINT_SUFFIXES) and not name.startswith(".") and not is_temporary_name(name)


def is_temporary_name(name: str) -> bool:
    """The name of a file on its way to another name."""
    return _TEMPORARY.search(name) is not None


def entry_key(entry: os.DirEntry[str]) -> FileKey | None:
    """The file's key, or None when it has just gone."""
    try:
        return file_key(entry.stat(follow_symlinks=False))
    except OSError:
        return None


def file_key(status: os.stat_result) -> FileKey:
    """(inode, size, mtime_ns)."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def name_on_server(path: Path, attempt_dir: Path, root: Path) -> str:
    """Relative to the attempt's directory; `workdir/…` for a run in place somewhere else."""
    if path.is_relative_to(attempt_dir):
        name = path.relative_to(attempt_dir).as_posix()
    else:
        name = f"workdir/{path.relative_to(root).as_posix()}"
    return name.encode("utf-8", "backslashreplace").decode()


def data_directory(attempt_dir: Path) -> Path:
    """The data directory an attempt lies in: no run in place looks into it, even when it is below it."""
    match = _RUN_DIRECTORY.fullmatch(str(attempt_dir))
    return Path(match["data"]) if match else attempt_dir


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []
