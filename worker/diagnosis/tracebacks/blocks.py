"""Parse tracebacks as Python, loguru and rich (also typer, Lightning) print them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MESSAGE_LINES = 40
"""Maximum lines of an exception's text; later lines are other output."""


class TracebackFrame(NamedTuple):
    """One call of a traceback."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class TracebackBlock:
    """One traceback with the exception below it."""

    first: int
    """Line number of its first line."""
    end: int
    """Line number after the first line of its exception."""
    before: str
    """The last nonempty line above it."""
    frames: list[TracebackFrame] = field(default_factory=list)
    message: str = ""
    """Type and text of the exception."""
    is_group: bool = False


def blocks(lines: list[str]) -> Iterator[TracebackBlock]:
    """Yield every traceback in lines without colours and prefixes."""
    for number, line in enumerate(lines):
        block = None
        if header := _HEADER.match(line):
            block = _python_block(lines, number, is_group="Group" in header[0])
        elif _RICH_HEADER.match(line):
            block = _rich_block(lines, number)
        if block is not None:
            yield block


def without_box(line: str) -> str:
    """Return the line without the box that rich draws around it."""
    return _BOX.sub("", line).strip()


_HEADER = re.compile(r"^(?:Original |Exception Group )?Traceback \(most recent call last\):$")
_RICH_HEADER = re.compile(r"^[╭+][─-]+ Traceback \(most recent call last\) [─-]+[╮+]$")
_RICH_END = re.compile(r"^[╰+][─-]+[╯+]$")
_BOX = re.compile(r"^[│|] ?| ?[│|]$|[╭╰╮╯][─ \w-]*|─{3,}")
_FRAME = re.compile(r'^(?:> )?\s*File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_RICH_FRAME = re.compile(r"^(?P<file>[/<~.\w].*?):(?P<line>\d+) in ?(?P<function>.*)$")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::.*)?$")
_NEXT = re.compile(
    r"^(?:The above exception was|During handling of the above|terminate called|\[[WEIF]\d{4}|[WEIF]\d{4} "
    r"|Exception ignored|Fatal Python error|=+$|--- Logging error)"
)
"""Lines that no longer belong to an exception's text."""


def _python_block(lines: list[str], first: int, is_group: bool) -> TracebackBlock | None:
    """Parse Python's format: indented lines are frames, the first other line is the exception."""
    frames: list[TracebackFrame] = []
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if frame := _FRAME.match(line):
            frames.append(TracebackFrame(frame["file"], int(frame["line"]), frame["function"] or ""))
        elif line and not line.startswith(" "):
            if not _EXCEPTION.match(line):
                return None
            message = "\n".join(_message(lines, number))
            return TracebackBlock(first, number + 1, _before(lines, first), frames, message, is_group)
    return None


def _message(lines: list[str], number: int) -> list[str]:
    message = lines[number : number + 1]
    for line in lines[number + 1 : number + MESSAGE_LINES]:
        if _HEADER.match(line) or _RICH_HEADER.match(line) or _NEXT.match(line):
            break
        message.append(line)
    return message


def _before(lines: list[str], first: int) -> str:
    return next((line for line in reversed(lines[max(0, first - 2) : first]) if line.strip()), "")


def _rich_block(lines: list[str], first: int) -> TracebackBlock | None:
    """Parse rich's format: a box of frames with source lines, and the exception below the box."""
    frames: list[TracebackFrame] = []
    partial_path = ""
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if _RICH_END.match(line):
            message = _unwrapped(lines[number + 1 : number + 1 + MESSAGE_LINES], len(line))
            if not _EXCEPTION.match(message.partition("\n")[0]):
                return None
            return TracebackBlock(first, number + 2, _before(lines, first), frames, message)
        if not line.startswith(("│", "|")):
            return None
        content = line[1:-1].strip()
        if frame := _RICH_FRAME.match(partial_path + content):
            frames.append(TracebackFrame(frame["file"], int(frame["line"]), frame["function"]))
            partial_path = ""
        else:  # a path longer than the box continues in the next line
            partial_path = content if content.startswith("/") and " " not in content else ""
    return None


def _unwrapped(lines: list[str], width: int) -> str:
    """Join the wrapped lines of an exception: a line continues if the next word did not fit into it."""
    text = last = next(iter(lines), "")
    for line in lines[1:]:
        first_word = line.partition(" ")[0]
        if not first_word or _NEXT.match(line) or len(last) + 1 + len(first_word) <= width:
            break
        text, last = f"{text} {line}", line
    return text
