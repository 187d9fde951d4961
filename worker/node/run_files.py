"""Selects the files of a run's directories to upload, and names them for the server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class FileKey(NamedTuple):
    """One version of a file: if its key is unchanged, it was not written to."""

    inode: int
    size_bytes: int
    mtime_ns: int


Listing = Mapping[str, Sequence[int]]
"""Absolute path -> file key; can be stored as JSON."""

PROFILES = "profiles"
"""Folder of the profiles' traces, below the attempt's directory."""
LOGGERS = "probe/loggers"
"""Folder of what the script's loggers got, below the attempt's directory."""
MAX_DEPTH = 16
MAX_ENTRIES = 500_000
_RUN_DIRECTORY = re.compile(r"(?P<data>.*)/(runs/[a-z0-9]{10}/attempts/\d+/node\d+|watched/[a-z0-9]{10}/attempt)")


Entries = Iterator[os.DirEntry[str]]


def walk_files(
    root: Path, matches: Callable[[str], bool], prune: Path | None = None, cut: Callable[[], object] = lambda: None
) -> Entries:
    """Yield regular files below `root` whose name `matches`; skips links, hidden folders and `prune`.

    `cut` is called at the end where there are more than `MAX_ENTRIES` entries: the rest is not looked at."""
    entries_left = MAX_ENTRIES
    pending = [(str(root), 0)]
    while pending and entries_left > 0:
        directory, depth = pending.pop()
        for entry in _entries(directory):
            entries_left -= 1
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH and entry.path != str(prune) and not entry.name.startswith("."):
                    pending.append((entry.path, depth + 1))
            elif matches(entry.name) and entry.is_file(follow_symlinks=False):
                yield entry
    if pending:
        cut()


def remember_existing(root: Path) -> dict[str, FileKey]:
    """The keys of the files below `root` before an attempt starts: none of them belongs to the attempt."""
    return {entry.path: key for entry in walk_files(root, counts) if (key := entry_key(entry)) is not None}


def counts(name: str) -> bool:
    """Whether the worker uploads files of this name, alone or as part of a folder."""
    return is_event_file(name) or is_checkpoint_name(name) or name.endswith(".distcp")


def is_event_file(name: str) -> bool:
    """Whether the name contains `tfevents`, which is TensorBoard's own rule."""
    return "tfevents" in name


CHECKPOINT_SUFFIXES = (".pt", ".pth", ".pth.tar", ".ckpt", ".bin", ".safetensors")
"""Many scripts name a file of torch.save `.pth.tar`, after torch's first format."""
_TEMPORARY = re.compile(r"\.(tmp|temp|part|partial|incomplete|swp)|[~]$|^tmp", re.IGNORECASE)


def is_checkpoint_name(name: str) -> bool:
    """Whether the name has a checkpoint's suffix and is neither hidden nor temporary."""
    return name.endswith(CHECKPOINT_SUFFIXES) and not name.startswith(".") and not is_temporary_name(name)


def is_temporary_name(name: str) -> bool:
    """Whether the name is that of a file that will be renamed when it is complete."""
    return _TEMPORARY.search(name) is not None


def entry_key(entry: os.DirEntry[str]) -> FileKey | None:
    """The file's key; None if the file no longer exists."""
    try:
        return file_key(entry.stat(follow_symlinks=False))
    except OSError:
        return None


def file_key(status: os.stat_result) -> FileKey:
    """The key of a file with this status."""
    return FileKey(status.st_ino, status.st_size, status.st_mtime_ns)


def name_on_server(path: Path, attempt_dir: Path, root: Path) -> str:
    """The path relative to the attempt's directory; `workdir/…` for a run in place."""
    if path.is_relative_to(attempt_dir):
        name = path.relative_to(attempt_dir).as_posix()
    else:
        name = f"workdir/{path.relative_to(root).as_posix()}"
    return name.encode("utf-8", "backslashreplace").decode()


def data_directory(attempt_dir: Path) -> Path:
    """The data directory that contains the attempt; a run in place never scans it."""
    match = _RUN_DIRECTORY.fullmatch(str(attempt_dir))
    return Path(match["data"]) if match else attempt_dir


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def existing_files(path: Path) -> Listing:
    """Return the listing of what was there before the attempt; empty if it is missing or unreadable."""
    from worker.node.state_files import read_object  # imports pydantic, for which a watched command would wait

    listing: Listing = read_object(path)
    return listing
