"""Check the entry of a run: a file or module that exists inside the folder and is Python."""

from __future__ import annotations

import os
import warnings
from pathlib import Path, PurePosixPath

from dashboard.paths import is_file
from dashboard.script_reader.parsing import parsed
from dashboard.snapshots.refusal import CodeRefused

LOOKED_AT_BYTES = 1024 * 1024
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "perl", "node", "ruby")


def entry_in(folder: Path, entry: str) -> str:
    """Return the entry relative to the folder. Raises CodeRefused where it is not a file inside it."""
    path = Path(entry)
    name = os.path.normpath(path.relative_to(folder) if path.is_absolute() and path.is_relative_to(folder) else path)
    if name.startswith("..") or os.path.isabs(name):  # noqa: PTH117
        raise CodeRefused("entry", f"{entry!r} lies outside of {folder}; it must be a file inside it.")
    file = folder / name
    if not is_file(file):
        raise CodeRefused("entry", f"there is no file {name!r} in {folder}.")
    if not file.resolve().is_relative_to(folder.resolve()):
        raise CodeRefused("entry", f"{name} is a link that leaves {folder}; it must be a file inside it.")
    return PurePosixPath(name).as_posix()


def check_module(folder: Path, module: str) -> None:
    """Check that a module is a file of the folder. Raises CodeRefused."""
    path = module.replace(".", "/")
    candidates = (f"{path}.py", f"{path}/__main__.py")
    if any(is_file(folder / name) for name in candidates):
        return
    subfolders = [
        subfolder for subfolder in ("src", "lib") if any(is_file(folder / subfolder / name) for name in candidates)
    ]
    hint = f" It is below {subfolders[0]}/: name {folder / subfolders[0]} as the folder." if subfolders else ""
    raise CodeRefused("module", f"there is neither {candidates[0]} nor {candidates[1]} in {folder}.{hint}")


def check_python(path: Path, field: str) -> str | None:
    """Check that a file is Python; returns a note where it does not compile here. Raises CodeRefused."""
    try:
        with path.open("rb") as file:
            content = file.read(LOOKED_AT_BYTES + 1)
    except OSError as error:
        raise CodeRefused(field, f"{path} cannot be read: {error.strerror}.") from error
    return python_problem(path.name, content, field)


def python_problem(name: str, content: bytes, field: str) -> str | None:
    """Check a file's first bytes; returns a note where they do not compile here. Raises CodeRefused."""
    if b"\0" in content:
        raise CodeRefused(field, f"{name} is not a Python script: it is a binary file.")
    if name.endswith(".ipynb"):
        raise CodeRefused(field, f"{name} is a notebook; `jupyter nbconvert --to script` makes a script of it.")
    shell = _other_interpreter(content)
    if shell:
        raise CodeRefused(field, f"{name} is not a Python script: its first line names {shell}.")
    if len(content) > LOOKED_AT_BYTES:
        return None
    error = _syntax_error(content)
    if error is None:
        return None
    location = f"line {error.lineno}: " if error.lineno else ""
    if not name.endswith(".py"):
        raise CodeRefused(field, f"{name} is not a Python script ({location}{error.msg}).")
    return f"{name} does not compile with the Python here ({location}{error.msg})."


def _syntax_error(content: bytes) -> SyntaxError | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed(content)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return None  # too deep for us; the training interpreter decides
    return None


def _other_interpreter(content: bytes) -> str | None:
    first = content.partition(b"\n")[0]
    if not first.startswith(b"#!"):
        return None
    tokens = first[2:].decode(errors="replace").split()
    programs = [token.rpartition("/")[2] for token in tokens]
    return next((name for name in programs if name in _SHELLS), None)
