"""Turn a script, a folder or a git address into a packed snapshot and its origin.

The command line calls this on its own machine, the dashboard for its form."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dashboard.snapshots.archive import Packed, check_size, pack, too_many_files
from dashboard.snapshots.code_checks import (
    CodeRequest,
    check_repository,
    checked_script,
    existing_path,
    not_public,
    starting_point,
)
from dashboard.snapshots.git import GitLimits, ask, clone
from dashboard.snapshots.git_address import CodeRefused, is_git_address, repository_name
from dashboard.snapshots.origin import LeftBehind, Origin
from dashboard.snapshots.selection import (
    MOST_LOOKED_AT,
    Selection,
    TooManyFiles,
    script_alone,
    select,
)
from domain.checkpoints.lfs_pointers import LEAST_BYTES, MOST_BYTES, bytes_of_pointer, pointers_in_words
from domain.text.formats import MIB, plural, size


def pack_code(request: CodeRequest, archive: Path, limit_bytes: int, limits: GitLimits | None = None) -> PackedCode:
    """Select the code and pack it into the file `archive`. Raises CodeRefused."""
    with chosen(request, limits or GitLimits()) as choice:
        packed = pack(choice.selection, archive, limit_bytes)
        return PackedCode(packed, request.target, choice.entry, choice.origin)


SMALL_BYTES = 20 * MIB
SMALL_FILES = 500
"""Limit of files up to which a script's folder is kept with it although it is no git checkout."""
MOST_NOTES = 3


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


def survey(request: CodeRequest, limit_bytes: int) -> CodeChoice | None:
    """Select the code without packing it; None for a git address, which is only checked. Raises CodeRefused."""
    if is_git_address(request.target):
        check_repository(request)
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
    url, ref = check_repository(request)
    with tempfile.TemporaryDirectory(prefix="rankzero-") as temporary:
        checkout = clone(url, ref, Path(temporary).resolve() / repository_name(url), limits)
        origin = Origin(kind="git", url=url, ref=ref, commit=checkout.commit)
        yield _select_folder(checkout.folder, request, origin, shown=url)


def _select_path(request: CodeRequest) -> CodeChoice:
    path = existing_path(request)
    kind: Literal["folder", "script"] = "folder" if path.is_dir() else "script"
    origin = Origin(kind=kind, path=str(path), host=socket.gethostname())
    if kind == "folder":
        return _select_folder(path.resolve(), request, origin, shown=str(path))
    return _select_script(path, request, origin)


def _select_script(named: Path, request: CodeRequest, origin: Origin) -> CodeChoice:
    """Select the script's folder if it is a checkout or small, else the script alone."""
    script, note = checked_script(named, request)
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
        entry, note = starting_point(folder, request)
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
            raise CodeRefused("entry", f"{entry} does not exist{not_public(request)}.")
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
