"""Keeps what torch.compile and Triton compiled, in one folder for each program, over its attempts and later runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from domain.launch.plan import COMPILE_CACHE_VARIABLES
from domain.spec import RunSpec

CACHE_BYTES = 4 * 1024**3


def folder_of(spec: RunSpec, data: Path) -> Path:
    """The program's folder on this node; versions of its code share it, because entries are found by their content."""
    program = json.dumps([spec.target, spec.entry, spec.module])
    return data / "node" / "compiled" / hashlib.sha256(program.encode()).hexdigest()[:16]


def open_for(spec: RunSpec, data: Path, own: Mapping[str, str]) -> str | None:
    """Create the program's folder or mark it as used; None where the worker's own environment names another.

    Raises OSError."""
    if any(name in own for name in COMPILE_CACHE_VARIABLES):
        return None
    folder = folder_of(spec, data)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.utime(folder)
    return str(folder)


def drop_oldest(data: Path, in_use: Collection[Path], most_bytes: int = CACHE_BYTES) -> None:
    """Delete the least recently used folders, but those in use, until all hold at most `most_bytes`."""
    folders = [path for path in (data / "node" / "compiled").glob("*") if path.is_dir()]
    sizes = {path: _size_bytes(path) for path in folders}
    total = sum(sizes.values())
    for path in sorted(folders, key=lambda path: path.stat().st_mtime):
        if total > most_bytes and path not in in_use:
            shutil.rmtree(path, ignore_errors=True)
            total -= sizes[path]


def _size_bytes(folder: Path) -> int:
    """Bytes on the disk of all files below."""
    sizes = []
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.lstat(os.path.join(parent, name)).st_blocks * 512)  # noqa: PTH118
            except FileNotFoundError:  # the compiler renames its files
                continue
    return sum(sizes)
