"""The lines of a requirements file: what each names, and why one cannot be installed as it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

Read = Callable[[str], str | None]
"""The text of a file of the code by its path; None if there is none."""


@dataclass(frozen=True)
class RequirementLine:
    """One line without its comment, and its place; a backslash joins lines."""

    file: str
    number: int
    text: str
    is_constraint: bool = False

    @property
    def place(self) -> str:
        """requirements.txt line 3"""
        return f"{self.file} line {self.number}"


@dataclass(frozen=True)
class Requirement:
    """A package that a line names."""

    name: str
    """As it is written; of an address without a name, its last part."""
    version: str | None
    """None where it is open, "" where the address fixes it."""
    is_from_git: bool = False


def decoded(content: bytes) -> str:
    """Return the text of a file as editors and PowerShell write it: UTF-16 and UTF-32 have a mark, or many zeros."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content.decode(encoding, errors="replace")
    if content[1:2] == b"\0" and content[:1] != b"\0":
        return content.decode("utf-16-le", errors="replace")
    return content.decode(errors="replace")


def lines_of(path: str, read: Read, visited: set[str] | None = None) -> Iterator[RequirementLine]:
    """Yield each line of a requirements file and of those that it includes."""
    visited = set() if visited is None else visited
    text = read(path)
    if text is None or path in visited or len(visited) >= _MOST_INCLUDED:
        return
    visited.add(path)
    for number, raw in _joined(text):
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        include = re.match(r"(?:-r|--requirement|(?P<only>-c|--constraint))[ =]\s*(?P<path>\S+)", line)
        if include:
            beside = str(PurePosixPath(path).parent / include["path"])
            for inner in lines_of(beside, read, visited):
                is_constraint = bool(include["only"]) or inner.is_constraint
                yield RequirementLine(inner.file, inner.number, inner.text, is_constraint)
        if line:
            yield RequirementLine(path, number, line)


def requirement_in(line: RequirementLine) -> Requirement | None:
    """Return what a line requires; None for options, local folders and constraints."""
    text = re.sub(r"^(-e|--editable)[ =]\s*(?=\S+\+)", "", line.text)
    if line.is_constraint or text.startswith("-") or _LOCAL.match(text):
        return None
    if address := _ADDRESS.match(text):
        return _at_address(address["name"], address["address"])
    match = _REQUIREMENT.match(text)
    if match is None:
        return None
    pin = re.match(r"===?\s*([^\s;,*]+)(?=\s|;|$)", match["rest"])
    return Requirement(match["name"], pin[1] if pin else None)


def trouble_in(lines: Sequence[RequirementLine]) -> str:
    """Return why requirements cannot be installed as they are, with the line and what to write; empty if they can."""
    has_index = any(_INDEX.match(line.text) for line in lines)
    troubles = (_trouble(line, has_index) for line in lines if not line.is_constraint)
    return next((trouble for trouble in troubles if trouble), "")


_MARKS = (
    (b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"),
    (b"\xef\xbb\xbf", "utf-8-sig"),
)  # fmt: skip
_MOST_INCLUDED = 50
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*(?P<rest>.*)")
_ADDRESS = re.compile(
    r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*@\s*)?(?P<address>[a-z][a-z0-9+]*:/\S+|[a-z]+\+\S+)"
)
_LOCAL = re.compile(r"(-e|--editable)[ =]|\.{0,2}/|\.$")
_INDEX = re.compile(r"(-i|-f|--index-url|--extra-index-url|--find-links)[ =]")
_OF_CONDA = re.compile(r"(?P<name>[A-Za-z0-9_][\w.-]*)=(?P<version>[^=\s]+)(=\S+)?")
_TABLE = re.compile(r"Package\s+Version.*|-+(\s+-+)+|[A-Za-z0-9_][\w.-]*\s+\d[\w.+!]*(\s+\S+){0,3}")
_OWN_INDEX = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*===?\s*(?P<version>[\w.!]+\+(?P<label>[\w.]+))")
_WHEEL = re.compile(r"(?P<name>[\w.]+)-(?P<version>\d[^-]*)-.*\.whl")
_TORCH_LABEL = re.compile(r"cu\d+|cpu|rocm[\d.]+|xpu")


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, those that end with a backslash joined to the next."""
    first, begun = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        first = first if begun else number
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        yield first, begun + line
        begun = ""
    if begun:
        yield first, begun


def _at_address(name: str | None, address: str) -> Requirement:
    """Return what an address requires: a repository, or a file with the version in its name."""
    bare, _, fragment = address.partition("#")
    egg = re.search(r"egg=([\w.-]+)", fragment)
    last = bare.rstrip("/").rpartition("/")[2]
    if re.match(r"(git|hg|svn|bzr)\+", bare):
        repository = last.partition("@")[0].removesuffix(".git")
        return Requirement(name or (egg[1] if egg else repository), "", is_from_git=True)
    file = _WHEEL.match(last.replace("%2B", "+"))
    return Requirement(name or (file["name"] if file else last), file["version"] if file else "")


def _trouble(line: RequirementLine, has_index: bool) -> str:
    text = line.text
    if text == "@EXPLICIT" or _OF_CONDA.fullmatch(text) or _TABLE.fullmatch(text):
        return (
            f"{line.place} ({text[:60]}) is conda or pip output for people, not a requirement: write it as "
            "`pip list --format=freeze` does (name==version), or give conda's as environment.yml."
        )
    address = _ADDRESS.match(text)
    if address and address["address"].startswith("file:/"):
        return _of_another_machine(line, address["name"], address["address"])
    own = _OWN_INDEX.match(text)
    return _without_index(line, own["name"], own["version"], own["label"]) if own and not has_index else ""


def _of_another_machine(line: RequirementLine, name: str | None, address: str) -> str:
    last = address.rstrip("/").rpartition("/")[2]
    file = _WHEEL.match(last)
    shown = name or (file["name"] if file else last)
    instead = f"{shown}=={file['version']}" if file else f"{shown}==VERSION, as `pip list --format=freeze` does"
    return f"{line.place}: {shown} is a path of the machine that wrote it ({address[:100]}): write {instead}."


def _without_index(line: RequirementLine, name: str, version: str, label: str) -> str:
    """Say that a version such as 2.9.0+cu126 is in no public index, and which index has it."""
    subject = f"{line.place}: {name}=={version} is not on PyPI"
    if _TORCH_LABEL.fullmatch(label):
        return f"{subject}: add the line `--extra-index-url https://download.pytorch.org/whl/{label}`."
    return f"{subject}: add the index that has +{label}, as a line `--extra-index-url ADDRESS`."
