"""List a folder without git, by the rules of the .gitignore files in and above it, and name what is never code."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec


def walk(folder: Path, most_files: int) -> FolderListing | None:
    """List all files, links and empty folders that are not ignored; None where there are too many."""
    listing = FolderListing()
    pending: list[tuple[str, tuple[Rules, ...]]] = [("", _rules_from_above(folder))]
    while pending:
        inside, rules = pending.pop()
        entries = _entries(folder / inside)
        names = {entry.name for entry in entries}
        if inside and is_foreign_folder(names):
            continue
        rules = _with_rules_here(folder, inside, names, rules)
        included = [entry for entry in entries if not _is_left_out(entry, inside, rules, listing.ignored)]
        if inside and not entries:
            listing.names.append(inside)
        for entry in included:
            if entry.is_dir(follow_symlinks=False):
                pending.append((f"{inside}{entry.name}/", rules))
            else:
                listing.names.append(inside + entry.name)
        if len(listing.names) + len(pending) > most_files:
            return None
    listing.names.sort()
    return listing


NEVER = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints"})
EVENT_FILES = "events.out.tfevents"
"""Prefix of event files; those of earlier runs would be read as the new run's."""
FOREIGN_MARKERS = ("pyvenv.cfg", "conda-meta", "rankzero.db", "join-token")
"""Files that mark a virtual environment, a conda environment or a data directory of Rankzero."""
_CACHES = frozenset({"node_modules", "__pycache__", "build", "dist"})


@dataclass(frozen=True)
class Rules:
    """The rules of one .gitignore, in the listed folder (`inside`) or above it (`above`)."""

    spec: GitIgnoreSpec
    inside: str = ""
    above: str = ""

    def verdict(self, name: str) -> bool | None:
        """Whether a name is ignored; None where this file has no rule for it."""
        return self.spec.check_file(self.above + name.removeprefix(self.inside)).include


LONGEST_IGNORE_BYTES = 1024 * 1024


@dataclass
class FolderListing:
    """The names of a folder's entries, and the ignored ones."""

    names: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def size_of(path: Path, most_entries: int) -> tuple[int, bool]:
    """Return the bytes of a file or folder, and whether counting stopped early."""
    total = 0
    pending = [path]
    while pending:
        current = pending.pop()
        if not current.is_dir() or current.is_symlink():
            total += _size(current)
            continue
        for entry in _entries(current):
            most_entries -= 1
            if most_entries < 0:
                return total, True
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            else:
                total += _size(Path(entry.path))
    return total, False


def _is_left_out(entry: os.DirEntry[str], inside: str, rules: tuple[Rules, ...], ignored: list[str]) -> bool:
    is_folder = entry.is_dir(follow_symlinks=False)
    if is_never_kept(entry.name) or (is_folder and entry.name.startswith(".")):
        return True
    name = f"{inside}{entry.name}{'/' if is_folder else ''}"
    if _is_ignored(name, rules):
        ignored.append(name)
        return True
    return False


def _is_ignored(name: str, rules: tuple[Rules, ...]) -> bool:
    """Whether a name is ignored; the innermost file with a rule for it decides."""
    verdicts = (rule.verdict(name) for rule in reversed(rules))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _with_rules_here(folder: Path, inside: str, names: Iterable[str], rules: tuple[Rules, ...]) -> tuple[Rules, ...]:
    spec = _spec(folder / inside / ".gitignore") if ".gitignore" in names else None
    return rules if spec is None else (*rules, Rules(spec, inside=inside))


def _rules_from_above(folder: Path) -> tuple[Rules, ...]:
    """Return the rules of the checkout that contains the folder."""
    above = [folder, *folder.parents]
    top = next((i for i, parent in enumerate(above) if (parent / ".git").exists()), 0)
    rules = []
    for parent in reversed(above[1 : top + 1]):
        spec = _spec(parent / ".gitignore")
        if spec is not None:
            rules.append(Rules(spec, above=f"{folder.relative_to(parent).as_posix()}/"))
    return tuple(rules)


def _spec(path: Path) -> GitIgnoreSpec | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return GitIgnoreSpec.from_lines(file.read(LONGEST_IGNORE_BYTES).splitlines())
    except (OSError, ValueError):
        return None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def is_never_kept(name: str) -> bool:
    """Whether no snapshot contains a file or folder of this name, wherever it is."""
    return name in NEVER or name.startswith(EVENT_FILES)


def is_foreign_folder(names: Collection[str]) -> bool:
    """Whether a folder with these entries is an environment or data directory rather than code."""
    return any(mark in names for mark in FOREIGN_MARKERS)


def foreign_folders(names: Iterable[str]) -> tuple[str, ...]:
    """Return the foreign folders among these paths, each with a trailing slash."""
    folders = set()
    for name in names:
        parts = name.split("/")
        for depth, part in enumerate(parts[1:], start=1):
            if part in FOREIGN_MARKERS:
                folders.add("/".join(parts[:depth]) + "/")
    return tuple(sorted(folders))


def is_worth_mentioning(name: str) -> bool:
    """Whether an omission matters to the user; that of caches and hidden files does not."""
    last = name.rstrip("/").rpartition("/")[2]
    is_cache = last in _CACHES or last.endswith((".egg-info", ".pyc", ".pyo", ".log"))
    return not (last.startswith(".") or is_cache or is_never_kept(last))
