"""Compare two snapshots: git makes the patch from their archives; nothing is unpacked, and no link is followed."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Literal, NamedTuple

from dashboard.snapshots.archive import Archive
from dashboard.snapshots.git import GitTooLarge, GitTooSlow, git, has_git
from domain.clock import SYSTEM_CLOCK
from domain.text.formats import MIB, size

TIME_LIMIT_S = 3.0


def compare(old: Path, new: Path, time_limit_s: float = TIME_LIMIT_S) -> CodeDifference:
    """Compare two archives. Raises CodeRefused where one of them cannot be read."""
    with Archive(old).opened() as a, Archive(new).opened() as b:
        return _Comparison(_Files(a), _Files(b), SYSTEM_CLOCK.now() + time_limit_s).result()


@dataclass(frozen=True)
class CodeDifference:
    """Every file that differs, by name."""

    files: tuple[FileChange, ...] = ()
    truncated: bool = False
    """Whether lines were left out for their number or for lack of time; every file is still named."""

    @cached_property
    def diff(self) -> str:
        """All differences as one text for git and patch."""
        return "".join(file.diff for file in self.files)


@dataclass(frozen=True)
class FileChange:
    """A file that differs between the two snapshots."""

    name: str
    kind: Kind
    old_name: str | None
    """The old name of a renamed file."""
    old_size_bytes: int | None
    new_size_bytes: int | None
    head: str
    """Git's header before the lines, or a sentence where these are omitted."""
    lines: str = ""
    lines_added: int = 0
    lines_removed: int = 0
    omitted: str | None = None
    """Why there are no lines although the contents differ."""

    @property
    def diff(self) -> str:
        """The difference in git's format."""
        return self.head + self.lines


Kind = Literal["added", "removed", "changed", "renamed"]
MOST_BYTES = MIB
"""Limit on a file whose lines are compared; larger ones are only named."""
MOST_CONTENT = 64 * MIB
"""Limit on the bytes of all files whose lines are compared."""
MOST_TEXT = 2 * MIB
"""Limit on the characters of all differences; files beyond it are only named."""
LINK = "120000"
BINARY = "binary"
TOO_MUCH = "too much differs to show it all"
NO_GIT = "git, which compares lines, is not installed on the dashboard's machine"
ISOLATED = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_ATTR_NOSYSTEM": "1"}
"""Git reads no settings but ours."""
OPTIONS = (
    "-c", "core.attributesFile=/dev/null", "-c", "core.quotePath=true",
    "-c", "core.compression=0", "-c", "pack.compression=0",
)  # fmt: skip
DIFF = (
    "diff-tree", "-r", "--raw", "-z", "-p", "-M100%", "--no-rename-empty",
    "--no-ext-diff", "--no-textconv", "--no-color", "old", "new",
)  # fmt: skip
_SECTION = re.compile(r"^(?=diff --git )", re.MULTILINE)


class _Files:
    """The files of an open archive."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._members = {member.name: member for member in archive if member.isreg() or member.issym()}

    @property
    def names(self) -> set[str]:
        return set(self._members)

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes, of a link that of its target; None where there is no such file."""
        if (member := self._members.get(name)) is None:
            return None
        return len(os.fsencode(member.linkname)) if member.issym() else member.size

    def mode(self, name: str) -> str:
        """Return git's mode of a file: its kind, and whether it is executable."""
        member = self._members[name]
        return LINK if member.issym() else "100755" if member.mode & 0o100 else "100644"

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content in chunks."""
        member = self._members[name]
        if member.issym():
            yield os.fsencode(member.linkname)
            return
        file = self._archive.extractfile(member)
        assert file is not None, "regular files have content"
        while chunk := file.read(MIB):
            yield chunk

    def content(self, name: str, is_omitted: bool) -> bytes:
        """Return the content; where it is omitted, its hash, which git takes for a binary file."""
        if not is_omitted:
            return b"".join(self.chunks(name))
        hashing = hashlib.sha256()
        for chunk in self.chunks(name):
            hashing.update(chunk)
        return b"\0" + hashing.digest()


class _Comparison:
    """A comparison of two archives; after the deadline, files are only named."""

    def __init__(self, old: _Files, new: _Files, until: float) -> None:
        self._old, self._new, self._until = old, new, until
        self._omitted: dict[str, str] = {}
        self._content_left = MOST_CONTENT
        self._trouble = TOO_MUCH
        """Why a file has no patch."""

    def result(self) -> CodeDifference:
        """Return every file that differs."""
        names = [name for name in sorted(self._old.names | self._new.names) if self._differs(name)]
        patches: Mapping[str, _Patch] = {}
        if not has_git():
            self._trouble = NO_GIT
        elif names:
            patches = self._patches(names)
        moved = {patch.old_name for patch in patches.values()}
        files = [self._change(name, patches.get(name)) for name in names if name not in moved]
        return CodeDifference(tuple(files), any(file.omitted == TOO_MUCH for file in files))

    def _differs(self, name: str) -> bool:
        old, new = self._old, self._new
        if old.size(name) != new.size(name) or old.mode(name) != new.mode(name):
            return True
        return any(a != b for a, b in zip(old.chunks(name), new.chunks(name), strict=True))

    def _patches(self, names: Sequence[str]) -> Mapping[str, _Patch]:
        """Return git's patch of each file, as far as they can be made in time."""
        for name in names:
            if reason := self._reason_to_omit(name):
                self._omitted[name] = reason
        is_whole = False
        with TemporaryDirectory() as repository, TemporaryFile() as stream, TemporaryFile() as out:
            with suppress(GitTooSlow, GitTooLarge, _GitFailed):
                self._git(repository, "init", "--quiet", "--bare", "--template=")
                self._write(stream, b"old", self._old, names)
                self._write(stream, b"new", self._new, names)
                stream.seek(0)
                self._git(repository, "fast-import", "--quiet", stdin=stream)
                self._git(repository, *DIFF, out=out)
                is_whole = True
            out.seek(0)
            return _parsed(out.read(), is_whole)

    def _git(
        self, repository: str, *arguments: str, stdin: IO[bytes] | None = None, out: IO[bytes] | None = None
    ) -> None:
        """Run git in the time that is left. Raises GitTooSlow, GitTooLarge, _GitFailed."""
        outcome = git(
            Path(repository), *arguments, options=OPTIONS, env=ISOLATED, stdin=stdin, out=out,
            limit_s=self._until - SYSTEM_CLOCK.now(),
            is_too_large=lambda: out is not None and os.fstat(out.fileno()).st_size > 4 * MOST_TEXT,
        )  # fmt: skip
        if outcome.code:
            self._trouble = f"git could not compare it: {outcome.complaint}"
            raise _GitFailed

    def _reason_to_omit(self, name: str) -> str | None:
        sizes = [files.size(name) or 0 for files in (self._old, self._new)]
        if max(sizes) > MOST_BYTES:
            return f"larger than {size(MOST_BYTES)}"
        self._content_left -= sum(sizes)
        return TOO_MUCH if self._content_left < 0 else None

    def _write(self, stream: IO[bytes], branch: bytes, files: _Files, names: Sequence[str]) -> None:
        """Write a commit with these files for `git fast-import`. Raises GitTooSlow."""
        stream.write(b"commit refs/heads/%s\ncommitter <> 0 +0000\ndata 0\n" % branch)
        for name in files.names.intersection(names):
            if SYSTEM_CLOCK.now() > self._until:
                raise GitTooSlow
            content = files.content(name, name in self._omitted)
            path = os.fsencode(quoted(name))
            stream.write(b"M %s inline %s\ndata %d\n" % (files.mode(name).encode(), path, len(content)))
            stream.write(content + b"\n")

    def _change(self, name: str, patch: _Patch | None) -> FileChange:
        old_name, head, lines = patch or (None, "", "")
        old_size, new_size = self._old.size(old_name or name), self._new.size(name)
        kind: Kind = "added" if old_size is None else "removed" if new_size is None else "changed"
        if old_name:
            return FileChange(name, "renamed", old_name, old_size, new_size, head)
        omitted = None
        if patch is None or "\nBinary files " in head + lines:
            omitted = self._omitted.get(name) or (BINARY if patch else self._trouble)
            before = quoted(f"a/{name}") if kind != "added" else "/dev/null"
            after = quoted(f"b/{name}") if kind != "removed" else "/dev/null"
            head = f"{'Binary files' if omitted == BINARY else 'Files'} {before} and {after} differ\n"
            return FileChange(name, kind, None, old_size, new_size, head, omitted=omitted)
        plus, minus = (sum(line.startswith(sign) for line in lines.split("\n")) for sign in "+-")
        return FileChange(name, kind, None, old_size, new_size, head, lines, plus, minus)


class _GitFailed(Exception):
    """Git ended with an error."""


class _Patch(NamedTuple):
    """Git's patch of one file, and the old name of a renamed one."""

    old_name: str | None
    head: str
    lines: str


def _parsed(output: bytes, is_whole: bool) -> dict[str, _Patch]:
    """Return the patches by name, as many as there is room for; the last of an output cut off is left out."""
    raw, _, patch = output.partition(b"\0\0")
    sections = iter(_SECTION.split(patch.decode(errors="replace"))[1 : None if is_whole else -1])
    patches: dict[str, _Patch] = {}
    characters_left = MOST_TEXT
    for status, old_name, name in _statuses(raw):
        # What became a link, or was one, is removed and added: two sections.
        text = "".join(next(sections, "") for _ in range(2 if status == "T" else 1))
        if not text or len(text) > characters_left:
            continue
        characters_left -= len(text)
        head, line_feed, lines = text.partition("\n@@ ")
        patches[name] = _Patch(old_name, head + line_feed[:1], line_feed[1:] + lines)
    return patches


def _statuses(raw: bytes) -> Iterator[tuple[str, str | None, str]]:
    """Yield the kind of change, the old name of a renamed file, and the name."""
    fields = iter(os.fsdecode(raw).split("\0"))
    for field in fields:
        status = field.rpartition(" ")[2][:1]
        old_name = next(fields, None) if status == "R" else None
        if name := next(fields, ""):
            yield status, old_name, name


def quoted(name: str) -> str:
    """Return a file's name as in git's patches: plain, or quoted like a C string where needed."""
    if all(c.isprintable() and c not in '"\\' for c in name):
        return name
    raw = name.encode(errors="surrogateescape")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw)
    return f'"{"".join(plain)}"'
