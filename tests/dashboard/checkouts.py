"""Small folders and git checkouts to take snapshots of."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path


def write(folder: Path, **files: str | bytes) -> Path:
    """Files by name; `__` stands for a slash and `_py` at the end for `.py`."""
    for name, content in files.items():
        path = folder / (name.removesuffix("_py").replace("__", "/") + (".py" if name.endswith("_py") else ""))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def git(folder: Path, *arguments: str) -> str:
    """A git command as somebody with a name."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, message: str = "first") -> str:
    """Everything in the folder as a commit; returns its hash."""
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def names_in(archive: Path) -> list[str]:
    """What a snapshot holds."""
    with tarfile.open(archive) as opened:
        return opened.getnames()
