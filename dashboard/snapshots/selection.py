"""Which files of a folder belong to a snapshot: what git would keep, or everything that is not ignored."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from dashboard.snapshots import walking
from dashboard.snapshots.naming import foreign_folders, is_never_kept, is_worth_mentioning
from dashboard.snapshots.origin import LeftBehind
from dashboard.snapshots.programs import ask, has_git
from dashboard.snapshots.refusal import CodeRefused

MOST_LOOKED_AT = 50_000
"""Files; a folder with more is none of code, and nobody waits for it to be listed."""
MOST_LEFT_OUT = 20
SIZED_ENTRIES = 20_000


class TooManyFiles(Exception):
    """The folder holds more files than are looked at."""


@dataclass(frozen=True)
class Item:
    """One entry of a snapshot."""

    name: str
    """Relative to the folder, with slashes."""
    path: Path
    kind: Literal["file", "folder", "link"] = "file"
    size_bytes: int = 0
    is_executable: bool = False
    link: str = ""
    """Where a link points, relative to its own folder and without any link on the way."""


@dataclass(frozen=True)
class Selection:
    """What of a folder is taken, sorted by name, and what of it would be missed."""

    folder: Path
    items: tuple[Item, ...]
    left_out: tuple[LeftBehind, ...] = ()
    is_git: bool = False

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(item.size_bytes for item in self.items)

    @property
    def files(self) -> int:
        """How many files and links."""
        return sum(item.kind != "folder" for item in self.items)

    def has(self, name: str) -> bool:
        """Is a file of that name in it?"""
        return any(item.name == name and item.kind != "folder" for item in self.items)

    def with_file(self, name: str) -> Selection:
        """The same with a file that was asked for by name, though it may be ignored."""
        if self.has(name):
            return self
        item = _item(self.folder, name, self.folder / name)
        assert isinstance(item, Item)
        items = tuple(sorted((*self.items, item), key=lambda entry: entry.name))
        return Selection(self.folder, items, self.left_out, self.is_git)


def select(
    folder: Path, most_files: int = MOST_LOOKED_AT, most_walked: int = MOST_LOOKED_AT, ask_git: bool = True
) -> Selection:
    """Look through a folder without reading its files; `most_walked` counts where it is no git checkout.

    Raises TooManyFiles, OSError."""
    folder = folder.resolve()
    listed = _listed_by_git(folder, most_files) if ask_git and has_git() else None
    if listed is not None:
        names, ignored = listed
        items, outside = _items(folder, names)
    else:
        walked = walking.walk(folder, most_walked)
        if walked is None:
            raise TooManyFiles
        ignored = walked.ignored
        items, outside = _items(folder, walked.names)
    if len(items) > most_files:
        raise TooManyFiles
    return Selection(folder, tuple(items), (*outside, *_notable(folder, ignored)), listed is not None)


def script_alone(script: Path) -> Selection:
    """One file and nothing of its folder."""
    folder = script.parent.resolve()
    item = _item(folder, script.name, folder / script.name)
    if not isinstance(item, Item):
        raise CodeRefused("target", f"{script} cannot be read.")
    return Selection(folder, (item,))


def _listed_by_git(folder: Path, most_files: int) -> tuple[list[str], list[str]] | None:
    """Names git knows or would add, and those it ignores; None where the folder is in no checkout."""
    outcome = ask(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if outcome.code != 0 or not outcome.out:
        return None  # also a folder that is itself ignored: then every file in it counts
    names = sorted(set(_names(outcome.out)))
    if len(names) > most_files:
        raise TooManyFiles
    ignored = ask(folder, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    foreign = foreign_folders(names)
    names_kept = [name for name in names if not name.startswith(foreign) and _is_kept(name)]
    return list(_with_checkouts(folder, names_kept, most_files)), list(_names(ignored.out))


def _with_checkouts(folder: Path, names: Iterable[str], most_files: int) -> Iterator[str]:
    """A checkout within the checkout (a submodule, say) is listed as one folder: its files are taken."""
    for name in names:
        inner = folder / name
        if inner.is_dir() and not inner.is_symlink():
            listed = _listed_by_git(inner, most_files)
            yield from (f"{name.rstrip('/')}/{inner_name}" for inner_name in (listed[0] if listed else ()))
        else:
            yield name


def _is_kept(name: str) -> bool:
    return not any(is_never_kept(part) for part in PurePosixPath(name).parts)


def _names(listing: bytes) -> Iterator[str]:
    return (os.fsdecode(name) for name in listing.split(b"\0") if name)


def _items(folder: Path, names: Iterable[str]) -> tuple[list[Item], list[LeftBehind]]:
    entries = [_item(folder, name, folder / name) for name in names]
    items = [item for item in entries if isinstance(item, Item)]
    targets = {item.name for item in items if item.kind != "link"}
    targets |= {str(parent) for name in targets for parent in PurePosixPath(name).parents}
    items_kept = [item for item in items if item.kind != "link" or _target(item) in targets]
    outside = [entry for entry in entries if isinstance(entry, LeftBehind)]
    return sorted(items_kept, key=lambda item: item.name), outside


def _item(folder: Path, name: str, path: Path) -> Item | LeftBehind | None:
    """None for what has just gone, leads nowhere, or is no file: sockets, pipes, devices."""
    try:
        status = path.lstat()
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return _link(folder, name, path)
    if stat.S_ISDIR(status.st_mode):
        return Item(name.rstrip("/"), path, "folder")
    if not stat.S_ISREG(status.st_mode):
        return None
    if not os.access(path, os.R_OK):
        return LeftBehind(name=_shown(name), size_bytes=status.st_size, why="unreadable")
    if _is_foreign(folder, status):
        return LeftBehind(name=_shown(name), size_bytes=status.st_size, why="outside")
    return Item(name, path, "file", status.st_size, bool(status.st_mode & 0o100))


def _is_foreign(folder: Path, status: os.stat_result) -> bool:
    """A hard link to a file elsewhere that not everybody may read: /etc/shadow is no code. Code that a backup or
    a package manager has linked usually may be read by all."""
    if status.st_nlink == 1 or status.st_mode & stat.S_IROTH:
        return False
    entries = (entry for top, *_ in os.walk(folder) for entry in _entries(top))
    names = sum(1 for entry in entries if entry.inode() == status.st_ino)
    return names < status.st_nlink


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _link(folder: Path, name: str, path: Path) -> Item | LeftBehind | None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    if target.is_relative_to(folder):
        return Item(name, path, "link", link=os.path.relpath(target, path.parent.resolve()))
    suffix = "/" if target.is_dir() else ""
    return LeftBehind(name=_shown(name) + suffix, size_bytes=0, why="outside")


def _target(item: Item) -> str:
    return os.path.normpath(PurePosixPath(item.name).parent / item.link)


def _notable(folder: Path, ignored: Iterable[str]) -> list[LeftBehind]:
    """The largest of what is ignored; virtual environments and caches are no news."""
    entries = []
    for name in ignored:
        path = folder / name
        if is_worth_mentioning(name) and not (path / "pyvenv.cfg").exists():
            size_bytes, at_least = walking.size_of(path, SIZED_ENTRIES)
            entries.append(LeftBehind(name=_shown(name), size_bytes=size_bytes, at_least=at_least))
    return sorted(entries, key=lambda entry: -entry.size_bytes)[:MOST_LEFT_OUT]


def _shown(name: str) -> str:
    return name.encode(errors="replace").decode()[:1000]
