"""Select a folder's files for a snapshot: those that git would keep, or all that are not ignored."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from dashboard.paths import is_public
from dashboard.snapshots import walking
from dashboard.snapshots.git import ask, has_git
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.origin import LeftBehind
from dashboard.snapshots.walking import foreign_folders, is_never_kept, is_worth_mentioning

MOST_LOOKED_AT = 50_000
"""Limit on listed files; a folder with more is not code, and listing it would take too long."""


def select(
    folder: Path, most_files: int = MOST_LOOKED_AT, most_walked: int = MOST_LOOKED_AT, ask_git: bool = True
) -> Selection:
    """Select a folder's entries without reading files; `most_walked` is the limit outside of git checkouts.

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


MOST_LEFT_OUT = 20
SIZED_ENTRIES = 20_000


class TooManyFiles(Exception):
    """The folder contains more files than are listed."""


@dataclass(frozen=True)
class Item:
    """One entry of a snapshot."""

    name: str
    """Name relative to the folder, with slashes."""
    path: Path
    kind: Literal["file", "folder", "link"] = "file"
    size_bytes: int = 0
    is_executable: bool = False
    link: str = ""
    """A link's resolved target, relative to the link's folder."""


@dataclass(frozen=True)
class Selection:
    """The selected entries of a folder, sorted by name, and the notable ones left out."""

    folder: Path
    items: tuple[Item, ...]
    left_out: tuple[LeftBehind, ...] = ()
    is_git: bool = False
    is_public: bool = False
    """Whether all files are for everybody on this machine, and still have to be when they are read."""

    @property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(item.size_bytes for item in self.items)

    @property
    def files(self) -> int:
        """Number of files and links."""
        return sum(item.kind != "folder" for item in self.items)

    def has(self, name: str) -> bool:
        """Whether a file of that name is selected."""
        return any(item.name == name and item.kind != "folder" for item in self.items)

    def public_part(self) -> Selection:
        """Return the selection without what not everybody on this machine may read: of a folder its name stays."""
        shown = [one for one in self.left_out if self._private_folder(one.name) is None]
        items, private = list[Item](), dict[str, int]()
        for item in self.items:
            if folder := self._private_folder(item.name):
                private[folder] = 0
            elif item.kind == "file" and not is_public(item.path):
                private[item.name] = item.size_bytes
            else:
                items.append(item)
        left_out = [LeftBehind(name=_shown(name), size_bytes=size, why="unreadable") for name, size in private.items()]
        return replace(self, items=tuple(items), left_out=(*shown, *left_out[:MOST_LEFT_OUT]), is_public=True)

    def _private_folder(self, name: str) -> str | None:
        """Return the outermost folder above a name that not everybody may list; None where there is none."""
        above = reversed(PurePosixPath(name).parents[:-1])
        return next((f"{folder}/" for folder in above if not is_public(self.folder / folder)), None)

    def with_file(self, name: str) -> Selection:
        """Return the selection with a file that was named explicitly, even if it is ignored."""
        if self.has(name):
            return self
        item = _item(self.folder, name, self.folder / name)
        assert isinstance(item, Item)
        items = tuple(sorted((*self.items, item), key=lambda entry: entry.name))
        return Selection(self.folder, items, self.left_out, self.is_git)


def script_alone(script: Path) -> Selection:
    """Select one file without its folder. Raises CodeRefused where it cannot be read."""
    folder = script.parent.resolve()
    item = _item(folder, script.name, folder / script.name)
    if not isinstance(item, Item):
        raise CodeRefused("target", f"{script} cannot be read.")
    return Selection(folder, (item,))


def _listed_by_git(folder: Path, most_files: int) -> tuple[list[str], list[str]] | None:
    """Return (names that git tracks or would add, ignored names); None outside of a checkout."""
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
    """Yield the names, with nested checkouts (submodules, say) replaced by their files."""
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
    """Return an entry, or why it is left out; None for deleted files, broken links, sockets and devices."""
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
    """Whether a file is a private file's hard link from elsewhere, such as /etc/shadow.

    Code that a backup or package manager has linked is usually world-readable."""
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
    """Return the largest ignored entries, without virtual environments and caches."""
    entries = []
    for name in ignored:
        path = folder / name
        if is_worth_mentioning(name) and not (path / "pyvenv.cfg").exists():
            size_bytes, at_least = walking.size_of(path, SIZED_ENTRIES)
            entries.append(LeftBehind(name=_shown(name), size_bytes=size_bytes, at_least=at_least))
    return sorted(entries, key=lambda entry: -entry.size_bytes)[:MOST_LEFT_OUT]


def _shown(name: str) -> str:
    return name.encode(errors="replace").decode()[:1000]
