"""Names that are never part of a snapshot, and those not worth a word when they stay behind."""

from __future__ import annotations

from collections.abc import Collection, Iterable

NEVER = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints"})
EVENT_FILES = "events.out.tfevents"
"""Of earlier runs: as part of the code they would be taken for the new run's own."""
FOREIGN_MARKERS = ("pyvenv.cfg", "conda-meta", "rankzero.db", "join-token")
"""What lies in a virtual environment, a conda environment, a data directory of Rankzero."""
_CACHES = frozenset({"node_modules", "__pycache__", "build", "dist"})


def is_never_kept(name: str) -> bool:
    """A file or folder that no snapshot holds, wherever it lies."""
    return name in NEVER or name.startswith(EVENT_FILES)


def is_foreign_folder(names: Collection[str]) -> bool:
    """Is a folder with these entries something else that only lies there?"""
    return any(mark in names for mark in FOREIGN_MARKERS)


def foreign_folders(names: Iterable[str]) -> tuple[str, ...]:
    """Of paths below a folder: the folders in it that are strangers, each with a slash at its end."""
    folders = set()
    for name in names:
        parts = name.split("/")
        for depth, part in enumerate(parts[1:], start=1):
            if part in FOREIGN_MARKERS:
                folders.add("/".join(parts[:depth]) + "/")
    return tuple(sorted(folders))


def is_worth_mentioning(name: str) -> bool:
    """Would somebody miss it? Caches and hidden things are not missed."""
    last = name.rstrip("/").rpartition("/")[2]
    is_cache = last in _CACHES or last.endswith((".egg-info", ".pyc", ".pyo", ".log"))
    return not (last.startswith(".") or is_cache or is_never_kept(last))
