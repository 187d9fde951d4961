"""Compare two snapshots inside their archives (nothing is unpacked, no link is followed), and make unified diffs."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Literal

from dashboard.snapshots.archive import Archive
from domain.clock import SYSTEM_CLOCK
from domain.text.formats import size

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
    """Git's header before the lines."""
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
MOST_BYTES = 1024 * 1024
"""Limit on a file whose lines are compared; larger ones are only named."""
MOST_TEXT = 2 * 1024 * 1024
"""Limit on the characters of all differences; files beyond it are only named."""
LINK = "120000"
BINARY = "binary"
_PIECE_BYTES = 1024 * 1024
Patch = tuple[str, str, str | None]
"""(header before the hunks, the hunks, why there are none although the contents differ)."""


class _Files:
    """The files of an open archive."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._members = {member.name: member for member in archive if member.isreg() or member.issym()}

    @property
    def names(self) -> set[str]:
        return set(self._members)

    def size(self, name: str) -> int:
        """Return a file's size in bytes; for a link, the length of its target."""
        member = self._members[name]
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
        while chunk := file.read(_PIECE_BYTES):
            yield chunk

    def read(self, name: str) -> bytes:
        """Return the whole content of a small file."""
        return b"".join(self.chunks(name))

    def sha256(self, name: str) -> bytes:
        """Return the hash of a file's mode and content."""
        hashing = hashlib.sha256(self.mode(name).encode())
        for chunk in self.chunks(name):
            hashing.update(chunk)
        return hashing.digest()


class _Comparison:
    """A comparison of two archives; after the deadline, files are only named."""

    def __init__(self, old: _Files, new: _Files, until: float) -> None:
        self._old, self._new, self._until = old, new, until
        self._text_left = MOST_TEXT
        self._truncated = False

    def result(self) -> CodeDifference:
        """Return every file that differs."""
        removed, added = self._old.names - self._new.names, self._new.names - self._old.names
        renamed = self._renamed(removed, added)
        changed = {name for name in self._old.names & self._new.names if self._differs(name)}
        shown = (added | removed | changed) - set(renamed.values())
        files = [
            self._renaming(renamed[name], name) if name in renamed else self._change(name) for name in sorted(shown)
        ]
        return CodeDifference(tuple(files), self._truncated)

    def _differs(self, name: str) -> bool:
        old, new = self._old, self._new
        if (old.size(name), old.mode(name)) != (new.size(name), new.mode(name)):
            return True
        return any(a != b for a, b in zip(old.chunks(name), new.chunks(name), strict=True))

    def _renamed(self, removed: Iterable[str], added: Iterable[str]) -> dict[str, str]:
        """Return the old name of every added file with the content of a removed one; empty files are not matched."""
        removed_by_size, added_by_size = _by_size(self._old, removed), _by_size(self._new, added)
        old_names: dict[str, str] = {}
        for size_bytes in removed_by_size.keys() & added_by_size.keys() - {0}:
            candidates = defaultdict(list)
            for name in removed_by_size[size_bytes]:
                candidates[self._old.sha256(name)].append(name)
            for name in added_by_size[size_bytes]:
                if same := candidates[self._new.sha256(name)]:
                    old_names[name] = same.pop(0)
        return old_names

    def _renaming(self, old_name: str, name: str) -> FileChange:
        size_bytes = self._new.size(name)
        head = f"{_title(old_name, name)}similarity index 100%\n"
        head += f"rename from {quoted(old_name)}\nrename to {quoted(name)}\n"
        return FileChange(name, "renamed", old_name, size_bytes, size_bytes, head)

    def _change(self, name: str) -> FileChange:
        old = self._old if name in self._old.names else None
        new = self._new if name in self._new.names else None
        kind: Kind = "changed" if old and new else "removed" if old else "added"
        is_replaced = old and new and (old.mode(name) == LINK) != (new.mode(name) == LINK)
        make = self._replacement if is_replaced else self._patch
        head, lines, omitted = make(name, old, new)
        plus, minus = (sum(line.startswith(sign) for line in lines.split("\n")) for sign in "+-")
        old_size = old.size(name) if old else None
        new_size = new.size(name) if new else None
        return FileChange(name, kind, None, old_size, new_size, head, lines, plus, minus, omitted)

    def _replacement(self, name: str, old: _Files | None, new: _Files | None) -> Patch:
        """Return a removal and an addition, for a file that replaced a link or the reverse."""
        removal, addition = self._patch(name, old, None), self._patch(name, None, new)
        return removal[0], removal[1] + addition[0] + addition[1], removal[2] or addition[2]

    def _patch(self, name: str, old: _Files | None, new: _Files | None) -> Patch:
        lines, omitted = self._lines(name, old, new)
        before, after = (
            quoted(f"a/{name}") if old else "/dev/null",
            quoted(f"b/{name}") if new else "/dev/null",
        )
        head = _title(name, name) + _modes(old.mode(name) if old else None, new.mode(name) if new else None)
        if omitted:
            files = "Binary files" if omitted == BINARY else "Files"
            head += f"{files} {before} and {after} differ\n"
        elif lines:
            tab = "\t" if " " in name else ""  # otherwise patch reads the text after a space as a time
            head += f"--- {before}{tab if old else ''}\n+++ {after}{tab if new else ''}\n"
        return head, lines, omitted

    def _lines(self, name: str, old: _Files | None, new: _Files | None) -> tuple[str, str | None]:
        if any(files and files.size(name) > MOST_BYTES for files in (old, new)):
            return "", f"larger than {size(MOST_BYTES)}"
        before, after = (files.read(name) if files else b"" for files in (old, new))
        if before == after:
            return "", None
        if b"\0" in before or b"\0" in after:
            return "", BINARY
        is_late = SYSTEM_CLOCK.now() > self._until
        old_text, new_text = before.decode(errors="replace"), after.decode(errors="replace")
        text = None if is_late else hunks(old_text, new_text, self._until)
        if text is None and SYSTEM_CLOCK.now() <= self._until:
            return "", "too many lines to compare"
        if text is None or len(text) > self._text_left:
            self._truncated = True
            return "", "too much differs to show it all"
        self._text_left -= len(text)
        return text, None


def _modes(old: str | None, new: str | None) -> str:
    if old is None:
        return f"new file mode {new}\n"
    if new is None:
        return f"deleted file mode {old}\n"
    return "" if old == new else f"old mode {old}\nnew mode {new}\n"


def _title(old_name: str, name: str) -> str:
    return f"diff --git {quoted('a/' + old_name)} {quoted('b/' + name)}\n"


def _by_size(files: _Files, names: Iterable[str]) -> Mapping[int, list[str]]:
    by_size = defaultdict(list)
    for name in sorted(names):
        by_size[files.size(name)].append(name)
    return by_size


# Make unified diffs for git and patch, within a time limit.

MOST_LINES = 20_000
"""Limit on a text's lines; a longer file is data, whose difference nobody reads."""
Opcode = tuple[str, int, int, int, int]


class TooLong(Exception):
    """The search exceeded its time limit."""


class _Matcher(SequenceMatcher[str]):
    """difflib's search with a deadline checked between its steps."""

    until: float = 0.0

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Do one step of the search. Raises TooLong."""
        if SYSTEM_CLOCK.now() > self.until:
            raise TooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def hunks(old: str, new: str, until: float) -> str | None:
    """Return the hunks between two texts; None where they are too long or `until` (monotonic) passes."""
    a, b = _lines(old), _lines(new)
    if a and b and max(len(a), len(b)) > MOST_LINES:
        return None
    matcher = _Matcher(None, a, b)
    matcher.until = until
    try:
        return "".join(_hunk(a, b, group) for group in matcher.get_grouped_opcodes())
    except TooLong:
        return None


def quoted(name: str) -> str:
    """Return a file's name as in git's patches: plain, or quoted like a C string where needed."""
    if all(c.isprintable() and c not in '"\\' for c in name):
        return name
    raw = name.encode(errors="surrogateescape")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw)
    return f'"{"".join(plain)}"'


def _lines(text: str) -> list[str]:
    """Split at line feeds only; as in git, other line ends are part of the line."""
    return list(StringIO(text, newline="\n"))


def _hunk(a: Sequence[str], b: Sequence[str], group: Sequence[Opcode]) -> str:
    old = _span(group[0][1], group[-1][2])
    new = _span(group[0][3], group[-1][4])
    lines = [f"@@ -{old} +{new} @@\n"]
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [_signed(" ", line) for line in a[i1:i2]]
        else:
            lines += [_signed("-", line) for line in a[i1:i2]]
            lines += [_signed("+", line) for line in b[j1:j2]]
    return "".join(lines)


def _span(start: int, stop: int) -> str:
    """Return a range in a unified diff's notation: first line and number of lines."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _signed(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
