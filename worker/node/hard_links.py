"""Detects hard links: a file that has a name outside the run's folders may not belong to the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from worker.node.run_files import MAX_ENTRIES


def leads_outside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether the file has a hard link outside `roots`. Frameworks link `last.ckpt` to the newest file of the same
    folder, which counts as inside. Raises OSError."""
    status = path.lstat()
    if status.st_nlink == 1:
        return False
    names = sum(1 for entry in _entries_below(roots) if _is_same(entry, status))
    return names < path.lstat().st_nlink  # read again: a link may have been deleted meanwhile


def _is_same(entry: os.DirEntry[str], status: os.stat_result) -> bool:
    if entry.inode() != status.st_ino:
        return False
    with suppress(OSError):
        entry_status = entry.stat(follow_symlinks=False)
        return (entry_status.st_dev, entry_status.st_ino) == (status.st_dev, status.st_ino)
    return False


def _entries_below(roots: Sequence[Path]) -> Iterator[os.DirEntry[str]]:
    """Yield every directory entry that is not a folder once, even where one root lies inside another."""
    pending, visited, entries_left = [str(root) for root in roots], set(), MAX_ENTRIES
    while pending and entries_left > 0:
        directory = pending.pop()
        if directory in visited:
            continue
        visited.add(directory)
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                entries_left -= 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry
