"""Names that are never part of a snapshot, and those whose omission is not worth mentioning."""

from __future__ import annotations

from collections.abc import Collection, Iterable

NEVER = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints"})
EVENT_FILES = "events.out.tfevents"
"""Prefix of event files; those of earlier runs would be read as the new run's."""
FOREIGN_MARKERS = ("pyvenv.cfg", "conda-meta", "rankzero.db", "join-token")
"""Files that mark a virtual environment, a conda environment or a data directory of Rankzero."""
_CACHES = frozenset({"node_modules", "__pycache__", "build", "dist"})


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
