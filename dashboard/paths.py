"""Check what a user's path leads to; one that is too long or contains a NUL leads nowhere and raises nothing."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from db import acting


def may_read(path: str | Path) -> bool:
    """Whether the dashboard reads a file or lists a folder of its machine for the actor; False where there is none.

    For all but the owner, who has its account, it reads only what everybody there may."""
    return exists(path) if acting.rights().reads_all_files else is_public(path)


def may_look(path: str | Path) -> bool:
    """Whether the actor may know what is at a path of this machine: everybody can find out, or they are the owner."""
    return acting.rights().reads_all_files or _is_reachable(path)


def is_visible_folder(path: str | Path) -> bool:
    """Whether the path is a folder, as far as the actor may know that."""
    return may_look(path) and is_folder(path)


def exists(path: str | Path) -> bool:
    """Whether there is such a file or folder on this machine."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: str | Path) -> bool:
    """Whether the path is a file."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | Path) -> bool:
    """Whether the path is a folder."""
    return os.path.isdir(path)  # noqa: PTH112


def is_public(path: str | Path) -> bool:
    """Whether everybody on this machine may read a file or list a folder, where links lead.

    Not what does not exist, nor a device or pipe, which may have no end or block its reader."""
    try:
        mode = Path(path).resolve(strict=True).stat().st_mode
    except (OSError, ValueError, RuntimeError):
        return False
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    is_plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return is_plain and mode & needed == needed and _is_reachable(path)


MayRead = Callable[[Path], bool]
"""Whether a path is a file that is read for the actor: scripts and folders name files that may not be theirs."""


def readable_files(only_public: bool) -> MayRead:
    """Return the rule of which files are read: all of them, or those alone that everybody on this machine may read."""
    return is_public if only_public else is_file


def open_if(may_read: MayRead, path: Path) -> BinaryIO | None:
    """Open a file, if it may be read where it lies once it is open: a name may lead elsewhere a moment later.

    None where it may not, or is no file. Raises OSError."""
    if not may_read(path):
        return None
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if is_file(opened := _opened_path(file)) and may_read(opened):
        return file
    file.close()
    return None


def _opened_path(file: BinaryIO) -> Path:
    """Return where an open file lies, without links."""
    if sys.platform == "darwin":
        return Path(os.fsdecode(fcntl.fcntl(file, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
    return Path(f"/proc/self/fd/{file.fileno()}").readlink()


def _is_reachable(path: str | Path) -> bool:
    """Whether everybody on this machine can find out if there is something at a path, where links lead."""
    try:
        named, real = Path(path).absolute(), Path(path).resolve()
        above = {*named.parents, *real.parents}  # a link may lie in a private folder, or lead into one
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in above if folder.exists())
    except (OSError, ValueError, RuntimeError):
        return False
