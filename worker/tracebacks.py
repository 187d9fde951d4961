"""Finds the exception that ended a Python process in what it wrote to stderr. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TAIL_LINES = 80


@dataclass(frozen=True)
class Failure:
    """An exception as its process printed it."""

    exception: str
    """Type and text, the first line of them."""
    file: str | None = None
    line: int | None = None
    """Where it came from in the user's own code, if any of it is there."""

    @property
    def place(self) -> str:
        """`, train.py line 41`, or nothing."""
        if self.file is None or self.line is None:
            return ""
        return f", {self.file.rpartition('/')[2]} line {self.line}"


def clean_lines(text: str) -> list[str]:
    """Lines without colours, torch's `[rank1]: ` and what a progress bar has overwritten."""
    plain = _ANSI.sub("", text.replace("\0", ""))
    lines = [line.rstrip().rpartition("\r")[2] for line in plain.split("\n")]
    return [_RANK_PREFIX.sub("", line) for line in lines]


def find_failure(text: str) -> Failure | None:
    """The exception of the last traceback: the one that was not caught, and the inner one of a data
    loader's or a spawned process's; not one of a thread or a destructor, unless there is no other."""
    lines = [_GROUP_PREFIX.sub("", line) for line in clean_lines(text)]
    failures = list(_failures(lines))
    for own, failure in reversed(failures):
        if own:
            return failure
    return failures[-1][1] if failures else _syntax_error(lines)


def last_words(text: str, limit: int = 300) -> str | None:
    """The last line with anything on it."""
    words = next((line.strip() for line in reversed(clean_lines(text)) if line.strip()), None)
    return shorten(words, limit) if words else None


def tail(text: str) -> str | None:
    """The last lines, as an error shows them."""
    return "\n".join(clean_lines(text)[-TAIL_LINES:]).strip("\n") or None


def shorten(text: str, limit: int = 300) -> str:
    """At most `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RANK_PREFIX = re.compile(r"^\[(?:[a-z]+\d+\]:\[)?rank\d+\]: ?")
_GROUP_PREFIX = re.compile(r"^ {2,}(?:\| ?|\+ (?=Exception Group))")
_HEADER = re.compile(r"^(?:Original |Exception Group )?Traceback \(most recent call last\):$")
_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+)')
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::.*)?$")
_NOT_FATAL = ("Exception ignored in", "Exception in thread", "--- Logging error")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<")
_OUR_RECIPES = re.compile(r"/worker/recipes/")


def _failures(lines: list[str]) -> Iterator[tuple[bool, Failure]]:
    """(whether it can have ended the process, the failure) for each traceback."""
    for number, line in enumerate(lines):
        if _HEADER.match(line):
            before = lines[number - 1] if number else ""
            if (failure := _read_block(lines[number + 1 :])) is not None:
                yield not before.startswith(_NOT_FATAL), failure


def _read_block(lines: list[str]) -> Failure | None:
    """Indented lines are frames; the first one that is not is the exception."""
    frames: list[tuple[str, int]] = []
    for number, line in enumerate(lines):
        if frame := _FRAME.match(line):
            frames.append((frame["file"], int(frame["line"])))
        elif line and not line.startswith(" "):
            if not _EXCEPTION.match(line):
                return None
            following = next(iter(lines[number + 1 :]), "").strip() if line.endswith(":") else ""
            return Failure(shorten(f"{line} {following}".strip()), *_users_frame(frames))
    return None


def _users_frame(frames: list[tuple[str, int]]) -> tuple[str | None, int | None]:
    """The last frame that is not in a library, else the last one."""
    own = [frame for frame in frames if not _LIBRARY.search(frame[0]) or _OUR_RECIPES.search(frame[0])]
    return (own or frames)[-1] if frames else (None, None)


def _syntax_error(lines: list[str]) -> Failure | None:
    """Python names the script's own syntax error without a traceback header."""
    for number in range(len(lines) - 1, -1, -1):
        if re.match(r"^(?:SyntaxError|IndentationError|TabError): ", lines[number]):
            for line in reversed(lines[:number]):
                if frame := _FRAME.match(line):
                    return Failure(shorten(lines[number]), frame["file"], int(frame["line"]))
    return None
