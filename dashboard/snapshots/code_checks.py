"""Check the code that a launch names: nothing is cloned, and no folder is listed.

The command line calls this on its own machine, the dashboard on its own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dashboard.paths import MayRead, exists, is_file, is_folder, is_public, may_look, may_read, readable_files
from dashboard.script_reader.source import parsed
from dashboard.snapshots import shell_script
from dashboard.snapshots.git_address import CodeRefused, check_address, check_ref, is_git_address
from db import acting
from domain.choices import RECIPES
from domain.requests.errors import InvalidRequest

if TYPE_CHECKING:  # the command line needs no models for this
    from domain.spec import RunSpec


def check_code_of(spec: RunSpec, shares_disk: Callable[[], bool]) -> None:
    """Check the code of a spec whose target is no recipe. Raises InvalidRequest.

    `shares_disk`: whether a node may see the same paths as this machine."""
    if is_git_address(spec.target):
        _check_address(spec)
    elif spec.snapshot is None:
        _check_path(spec, shares_disk)


@dataclass(frozen=True)
class CodeRequest:
    """The code that a launch names."""

    target: str
    entry: str | None = None
    module: str | None = None
    ref: str | None = None
    links: frozenset[str] = field(default_factory=frozenset)
    """Names that are linked into the working directory."""
    only_public: bool = False
    """Whether only files that everybody on this machine may read are taken: the visitor has no account here."""

    @property
    def takes_only_public(self) -> bool:
        """Whether files that not everybody may read are left out; a clone's are all of the address."""
        return self.only_public and not is_git_address(self.target)

    @classmethod
    def of(cls, spec: RunSpec) -> CodeRequest:
        """The code of a launch on this dashboard, as far as the actor may read it."""
        only_public = not acting.rights().reads_all_files
        return cls(spec.target, spec.entry, spec.module, spec.ref, frozenset(spec.links), only_public)


PRIVATE = ", or not everybody there may read it"


def _check_address(spec: RunSpec) -> None:
    """Check a git address, also of uploaded code: it is stored and shown. Raises CodeRefused."""
    if spec.snapshot:
        check_address(spec.target)
    elif spec.workdir:
        raise CodeRefused("workdir", "a git address cannot run in place; remove the workdir.")
    else:
        check_repository(CodeRequest.of(spec))


def _check_path(spec: RunSpec, shares_disk: Callable[[], bool]) -> None:
    if not spec.target.startswith("/"):
        raise _not_absolute(spec.target)
    if spec.workdir:
        if shares_disk() and may_look(spec.target):  # else the node says what is there, for the run's account
            _check_in_place(spec)
    elif not may_read(spec.target):
        request = CodeRequest.of(spec)
        raise CodeRefused(
            "target",
            f"{spec.target!r} does not exist on the dashboard's machine{not_public(request)}. Launch it with `rankzero "
            "launch` where it is, or run it in place on the nodes with a workdir.",
        )
    else:
        check_code(CodeRequest.of(spec))


def _check_in_place(spec: RunSpec) -> None:
    if not exists(spec.target):
        raise CodeRefused("target", f"the script {spec.target!r} does not exist.")
    if is_folder(spec.target) and not (spec.entry or spec.module):
        raise CodeRefused("entry", f"{spec.target} is a folder; name the file or module to start in it.")
    path = Path(spec.target) / (spec.entry or "")
    if is_folder(spec.target) and spec.entry and may_look(path) and not is_file(path):
        raise CodeRefused("entry", f"there is no file {spec.entry!r} in {spec.target}.")


def _not_absolute(target: str) -> InvalidRequest:
    if "/" in target or target.endswith(".py"):
        return InvalidRequest("target", f"target must be an absolute path, got {target!r}.")
    recipes = ", ".join(RECIPES)
    return CodeRefused(
        "target",
        f"there is no recipe {target!r} (known: {recipes}); a script is named by its absolute path.",
    )


def check_code(request: CodeRequest) -> None:
    """Check a request cheaply: nothing is cloned and no folder is listed. Raises CodeRefused."""
    if is_git_address(request.target):
        check_repository(request)
    else:
        path = existing_path(request)
        starting_point(path, request) if path.is_dir() else checked_script(path, request)


def check_repository(request: CodeRequest) -> tuple[str, str | None]:
    """Return the address and the ref of a repository. Raises CodeRefused."""
    url, ref = check_address(request.target), check_ref(request.ref)
    if not (request.entry or request.module):
        raise CodeRefused("entry", f"{url} is a repository; name the file or module to start in it.")
    return url, ref


def existing_path(request: CodeRequest) -> Path:
    """Return the existing script or folder. Raises CodeRefused."""
    path = Path(request.target)
    if request.ref:
        raise CodeRefused("ref", "only a git address has one; a folder is packed in its current state.")
    if not exists(path) or (request.only_public and not is_public(path)):
        raise CodeRefused("target", f"{request.target[:300]!r} does not exist{not_public(request)}.")
    if not path.is_dir() and not path.is_file():
        raise CodeRefused("target", f"{path} is neither a file nor a folder.")
    if path.is_dir() and not (request.entry or request.module):
        raise CodeRefused("entry", f"{path} is a folder; name the file or module to start in it.")
    return path


def not_public(request: CodeRequest) -> str:
    """The clause on a path that is not there for the visitor."""
    return PRIVATE if request.only_public else ""


def checked_script(named: Path, request: CodeRequest) -> tuple[Path, str | None]:
    """Return the script as Python starts it, and a note about it. Raises CodeRefused."""
    script = named.resolve()  # Python, too, looks for modules beside the file that a link leads to
    if request.module:
        raise CodeRefused("module", f"{named} is a script; name the folder that the module is in.")
    if request.entry and request.entry != script.name:
        raise CodeRefused("entry", f"{named} is a script; name its folder to start {request.entry!r}.")
    return script, check_python(script, "target")


def starting_point(folder: Path, request: CodeRequest) -> tuple[str | None, str | None]:
    """Return the entry inside the folder, if there is one, and a note about it. Raises CodeRefused."""
    may_read = readable_files(request.takes_only_public)
    if request.module:
        check_module(folder, request.module, may_read)
    if not request.entry:
        return None, None
    entry = entry_in(folder, request.entry, may_read)
    return entry, check_python(folder / entry, "entry")


# Check the entry of a run: a file or module that exists inside the folder and is Python.

LOOKED_AT_BYTES = 1024 * 1024
_POSIX = ("sh", "bash", "zsh", "dash", "ksh", None)
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "perl", "node", "ruby")


def entry_in(folder: Path, entry: str, may_read: MayRead = is_file) -> str:
    """Return the entry relative to the folder. Raises CodeRefused where it is not a file inside it."""
    path = Path(entry)
    name = os.path.normpath(path.relative_to(folder) if path.is_absolute() and path.is_relative_to(folder) else path)
    if name.startswith("..") or os.path.isabs(name):  # noqa: PTH117
        raise CodeRefused("entry", f"{entry!r} lies outside of {folder}; it must be a file inside it.")
    file = folder / name
    if not may_read(file):
        private = PRIVATE if may_read is is_public else ""
        raise CodeRefused("entry", f"there is no file {name!r} in {folder}{private}.")
    if not file.resolve().is_relative_to(folder.resolve()):
        raise CodeRefused("entry", f"{name} is a link that leaves {folder}; it must be a file inside it.")
    return PurePosixPath(name).as_posix()


def check_module(folder: Path, module: str, may_read: MayRead = is_file) -> None:
    """Check that a module is a file of the folder. Raises CodeRefused."""
    path = module.replace(".", "/")
    candidates = (f"{path}.py", f"{path}/__main__.py")
    if any(may_read(folder / name) for name in candidates):
        return
    subfolders = [
        subfolder for subfolder in ("src", "lib") if any(may_read(folder / subfolder / name) for name in candidates)
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
    if shell or name.endswith((".sh", ".bash")):
        reason = f"its first line names {shell}" if shell else "it is one of a shell"
        advice = f" {shell_script.advice(content, field)}" if shell in _POSIX else ""
        raise CodeRefused(field, f"{name} is not a Python script: {reason}.{advice}")
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
