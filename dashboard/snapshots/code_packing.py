"""Check a script, a folder or a git address, and turn it into a packed snapshot and its origin.

The command line calls this on its own machine, the dashboard for its form."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from dashboard.paths import MayRead, exists, is_file, is_folder, is_public, may_look, may_read, readable_files
from dashboard.script_reader.source import parsed
from dashboard.snapshots import shell_script
from dashboard.snapshots.archive import Packed, check_size, pack, too_many_files
from dashboard.snapshots.git import GitLimits, ask, clone
from dashboard.snapshots.git_address import CodeRefused, check_address, check_ref, is_git_address, repository_name
from dashboard.snapshots.origin import LeftBehind, Origin
from dashboard.snapshots.selection import (
    MOST_LOOKED_AT,
    Selection,
    TooManyFiles,
    script_alone,
    select,
)
from db import acting
from domain.checkpoints.lfs_pointers import LEAST_BYTES, MOST_BYTES, bytes_of_pointer, pointers_in_words
from domain.choices import RECIPES
from domain.requests.errors import InvalidRequest
from domain.text.formats import MIB, plural, size

if TYPE_CHECKING:  # the command line needs no models for this
    from domain.spec import RunSpec


def pack_code(request: CodeRequest, archive: Path, limit_bytes: int, limits: GitLimits | None = None) -> PackedCode:
    """Select the code and pack it into the file `archive`. Raises CodeRefused."""
    with chosen(request, limits or GitLimits()) as choice:
        packed = pack(choice.selection, archive, limit_bytes)
        return PackedCode(packed, request.target, choice.entry, choice.origin)


SMALL_BYTES = 20 * MIB
SMALL_FILES = 500
"""Limit of files up to which a script's folder is kept with it although it is no git checkout."""
MOST_NOTES = 3
PRIVATE = ", or not everybody there may read it"


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


@dataclass(frozen=True)
class CodeChoice:
    """The contents of a snapshot, before any file is read or written."""

    selection: Selection
    entry: str | None
    origin: Origin


@dataclass(frozen=True)
class PackedCode:
    """A packed snapshot with its entry and origin."""

    packed: Packed
    target: str
    entry: str | None
    origin: Origin


def check_code_of(spec: RunSpec, shares_disk: Callable[[], bool]) -> None:
    """Check the code of a spec whose target is no recipe. Raises InvalidRequest.

    `shares_disk`: whether a node may see the same paths as this machine."""
    if is_git_address(spec.target):
        _check_address(spec)
    elif spec.snapshot is None:
        _check_path(spec, shares_disk)


def _check_address(spec: RunSpec) -> None:
    """Check a git address, also of uploaded code: it is stored and shown. Raises CodeRefused."""
    if spec.snapshot:
        check_address(spec.target)
    elif spec.workdir:
        raise CodeRefused("workdir", "a git address cannot run in place; remove the workdir.")
    else:
        _check_git(CodeRequest.of(spec))


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
            f"{spec.target!r} does not exist on the dashboard's machine{_private(request)}. Launch it with `rankzero "
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
        _check_git(request)
    else:
        path = _existing_path(request)
        _starting_point(path, request) if path.is_dir() else _checked_script(path, request)


def survey(request: CodeRequest, limit_bytes: int) -> CodeChoice | None:
    """Select the code without packing it; None for a git address, which is only checked. Raises CodeRefused."""
    if is_git_address(request.target):
        _check_git(request)
        return None
    choice = _select_path(request)
    check_size(choice.selection, limit_bytes)
    return choice


@contextmanager
def chosen(request: CodeRequest, limits: GitLimits) -> Iterator[CodeChoice]:
    """Select the code; a clone is deleted when the context ends. Raises CodeRefused."""
    if not is_git_address(request.target):
        yield _select_path(request)
        return
    url, ref = _check_git(request)
    with tempfile.TemporaryDirectory(prefix="rankzero-") as temporary:
        checkout = clone(url, ref, Path(temporary).resolve() / repository_name(url), limits)
        origin = Origin(kind="git", url=url, ref=ref, commit=checkout.commit)
        yield _select_folder(checkout.folder, request, origin, shown=url)


def _check_git(request: CodeRequest) -> tuple[str, str | None]:
    url, ref = check_address(request.target), check_ref(request.ref)
    if not (request.entry or request.module):
        raise CodeRefused("entry", f"{url} is a repository; name the file or module to start in it.")
    return url, ref


def _existing_path(request: CodeRequest) -> Path:
    """Return the existing script or folder. Raises CodeRefused."""
    path = Path(request.target)
    if request.ref:
        raise CodeRefused("ref", "only a git address has one; a folder is packed in its current state.")
    if not exists(path) or (request.only_public and not is_public(path)):
        raise CodeRefused("target", f"{request.target[:300]!r} does not exist{_private(request)}.")
    if not path.is_dir() and not path.is_file():
        raise CodeRefused("target", f"{path} is neither a file nor a folder.")
    if path.is_dir() and not (request.entry or request.module):
        raise CodeRefused("entry", f"{path} is a folder; name the file or module to start in it.")
    return path


def _private(request: CodeRequest) -> str:
    return PRIVATE if request.only_public else ""


def _select_path(request: CodeRequest) -> CodeChoice:
    path = _existing_path(request)
    kind: Literal["folder", "script"] = "folder" if path.is_dir() else "script"
    origin = Origin(kind=kind, path=str(path), host=socket.gethostname())
    if kind == "folder":
        return _select_folder(path.resolve(), request, origin, shown=str(path))
    return _select_script(path, request, origin)


def _checked_script(named: Path, request: CodeRequest) -> tuple[Path, str | None]:
    """Return the script as Python starts it, and a note about it."""
    script = named.resolve()  # Python, too, looks for modules beside the file that a link leads to
    if request.module:
        raise CodeRefused("module", f"{named} is a script; name the folder that the module is in.")
    if request.entry and request.entry != script.name:
        raise CodeRefused("entry", f"{named} is a script; name its folder to start {request.entry!r}.")
    return script, check_python(script, "target")


def _starting_point(folder: Path, request: CodeRequest) -> tuple[str | None, str | None]:
    """Return the entry inside the folder, if there is one, and a note about it."""
    may_read = readable_files(request.takes_only_public)
    if request.module:
        check_module(folder, request.module, may_read)
    if not request.entry:
        return None, None
    entry = entry_in(folder, request.entry, may_read)
    return entry, check_python(folder / entry, "entry")


def _select_script(named: Path, request: CodeRequest, origin: Origin) -> CodeChoice:
    """Select the script's folder if it is a checkout or small, else the script alone."""
    script, note = _checked_script(named, request)
    notes = [note] if note else []
    selection = _small_or_checkout(script)
    if selection is None:
        selection = script_alone(script)
        notes.append(
            f"Only {script.name} itself is stored: {script.parent} is not a git checkout and larger than "
            f"{plural(SMALL_FILES, 'file')} or {size(SMALL_BYTES)}. Launch the folder with --entry "
            f"{script.name} to store all of it."
        )
    return _choice(selection.with_file(script.name), script.name, origin, notes, request)


def _small_or_checkout(script: Path) -> Selection | None:
    folder = script.parent
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  (there may be none, which is no error here)
    crowded = (Path("/"), home.resolve(), Path(tempfile.gettempdir()).resolve())
    if folder in crowded and not (folder / ".git").exists():
        return None  # shared by everybody, or a whole home directory
    try:
        selection = select(folder, most_walked=SMALL_FILES)
    except TooManyFiles:
        return None
    is_small = selection.files <= SMALL_FILES and selection.size_bytes <= SMALL_BYTES
    return selection if selection.is_git or is_small else None


def _select_folder(folder: Path, request: CodeRequest, origin: Origin, shown: str) -> CodeChoice:
    try:
        entry, note = _starting_point(folder, request)
    except CodeRefused as error:  # do not show a temporary folder
        message = str(error).removeprefix(f"{error.field}: ")
        raise CodeRefused(error.field, message.replace(str(folder), shown)) from None
    try:
        selection = select(folder)
    except TooManyFiles:
        raise too_many_files(folder, MOST_LOOKED_AT) from None
    if entry:
        selection = selection.with_file(entry)
    return _choice(selection, entry, origin, [note] if note else [], request)


def _choice(
    selection: Selection, entry: str | None, origin: Origin, notes: list[str], request: CodeRequest
) -> CodeChoice:
    facts: dict[str, object] = {}
    if request.takes_only_public:
        selection = selection.public_part()
        if entry and not selection.has(entry):
            raise CodeRefused("entry", f"{entry} does not exist{_private(request)}.")
    if selection.is_git and origin.kind != "git":
        facts, note = _git_facts(selection.folder, entry)
        notes += [note] if note else []
    notes += _pointer_notes(selection)
    missing = [entry for entry in selection.left_out if entry.name.rstrip("/") not in request.links]
    if origin.kind != "git":
        notes += _notes_on(selection.folder, missing)
    left_out = list(selection.left_out)
    return CodeChoice(selection, entry, origin.model_copy(update={**facts, "left_out": left_out, "notes": notes}))


def _git_facts(folder: Path, entry: str | None) -> tuple[dict[str, object], str | None]:
    """Return commit, branch and whether there are uncommitted changes; a note where only a subfolder is kept."""
    commit = ask(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    branch = ask(folder, "symbolic-ref", "--short", "--quiet", "HEAD")
    status = ask(folder, "status", "--porcelain", "--untracked-files=normal", "--", ".")
    facts: dict[str, object] = {
        "commit": commit.out.decode().strip() or None,
        "branch": branch.out.decode(errors="replace").strip()[:250] or None,
        "dirty": bool(status.out.strip()),
    }
    prefix = ask(folder, "rev-parse", "--show-prefix").out.decode(errors="replace").strip()
    if not prefix:
        return facts, None
    start = f" with --entry {prefix}{entry}" if entry else ""
    top = folder
    for _ in Path(prefix).parts:
        top = top.parent
    return facts, f"Only {prefix} of the checkout is stored; launch {top}{start} to store all of it."


def _pointer_notes(selection: Selection) -> list[str]:
    """Name the files of which the folder has only Git LFS pointers."""
    small = [one for one in selection.items if one.kind == "file" and LEAST_BYTES <= one.size_bytes <= MOST_BYTES]
    pointers = [(one.name, pointed) for one in small if (pointed := bytes_of_pointer(_content(one.path)))]
    if not pointers:
        return []
    names = pointers_in_words([name for name, _ in pointers], sum(pointed for _, pointed in pointers))
    return [f"{names}: run `git lfs pull` in the checkout and launch it from there."]


def _content(path: Path) -> bytes:
    """The content of a small file; empty if it cannot be read, or is another one by now."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MOST_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    return b""


def _notes_on(folder: Path, missing: list[LeftBehind]) -> list[str]:
    notes = [_note_on(folder, entry) for entry in missing[:MOST_NOTES]]
    remaining = len(missing) - len(notes)
    return [*notes, f"{plural(remaining, 'more name is', 'more names are')} left out."] if remaining > 0 else notes


def _note_on(folder: Path, entry: LeftBehind) -> str:
    name = entry.name.rstrip("/")
    if entry.why == "unreadable":
        return f"{name} cannot be read and is not in the snapshot."
    sentence = f"{entry.name} ({'over ' if entry.at_least else ''}{size(entry.size_bytes)}) is ignored by git"
    if entry.why == "outside":
        sentence = f"{entry.name} is a link out of the folder"
    advice = "run in place with --workdir if the training needs it"
    if "/" not in name:
        advice = f"--link {name}={folder / name} links it there"
    return f"{sentence} and not in the snapshot; {advice}."


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
