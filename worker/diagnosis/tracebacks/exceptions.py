"""Finds the exception that ended a Python process in what it wrote. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from worker.diagnosis.tracebacks.blocks import TracebackBlock, TracebackFrame, blocks, without_box

TAIL_LINES = 80
LIMIT = 240
"""Characters of an exception that a sentence shows."""
MOST_ANNOUNCED = 3
"""Lines of a message that are told where each one ends by announcing the next."""
TEXT_LIMIT = 4000


@dataclass(frozen=True)
class PythonFailure:
    """An exception as its process printed it."""

    exception: str
    """Type and text, the first line of them."""
    file: str | None = None
    line: int | None = None
    """Where it came from in the user's own code, if any of it is there."""
    text: str = ""
    """All of its text."""
    functions: tuple[str, ...] = ()
    """What had been called, the innermost last."""
    process: int | None = None
    """Of a process that `mp.spawn` started: its number."""
    earlier: PythonFailure | None = None
    """The exception that led to this one."""
    link: str = ""
    """`caused by` or `while handling`: how it led to this one."""

    @property
    def place(self) -> str:
        """`, train.py line 41`, or nothing."""
        if self.file is None or self.line is None:
            return ""
        return f", {self.file.rpartition('/')[2]} line {self.line}"

    @property
    def origin(self) -> str:
        """`, caused by KeyError: 'lr'`, or nothing."""
        return f", {self.link} {shorten(self.earlier.exception, 150)}" if self.earlier else ""

    @cached_property
    def all_text(self) -> str:
        """Its text and that of those that led to it, the last one first."""
        return f"{self.text}\n{self.earlier.all_text}" if self.earlier else self.text


def find_failure(text: str) -> PythonFailure | None:
    """The exception of the last traceback: the one that was not caught, and the inner one of a data
    loader's or a spawned process's; not one of a thread or a destructor, nor a launcher's report of
    somebody else's, unless there is no other."""
    lines = [_GROUP_PREFIX.sub("", line) for line in clean_lines(text)]
    ranked = list(_ranked(lines))
    best = max((rank for rank, _ in ranked), default=0)
    return next((failure for rank, failure in reversed(ranked) if rank == best), None) or _syntax_error(lines)


def find_crash(text: str) -> tuple[str, str | None, int | None] | None:
    """(what, file, line) from a fatal error that Python's fault handler reported."""
    lines = clean_lines(text)
    for number, line in enumerate(lines):
        if line.startswith("Fatal Python error: "):
            frames = [
                TracebackFrame(f["file"], int(f["line"]), "") for f in map(_FAULT.match, lines[number:]) if f
            ]
            return line.removeprefix("Fatal Python error: "), *_users_frame(frames[::-1])
    return None


def by_rank(text: str) -> dict[int, str]:
    """What each rank wrote into one stream, by the `[rank1]: ` that torch puts before tracebacks."""
    found: dict[int, list[str]] = {}
    for line in _ANSI.sub("", text).split("\n"):
        if match := re.match(r"\[(?:[a-z]+\d+\]:\[)?rank(\d+)\]: ?", line):
            found.setdefault(int(match[1]), []).append(line[match.end() :])
    return {rank: "\n".join(lines) for rank, lines in found.items()}


def clean_lines(text: str) -> list[str]:
    """Lines without colours, torch's `[rank1]: ` and what a progress bar has overwritten."""
    plain = _ANSI.sub("", text.replace("\0", ""))
    lines = [line.rstrip().rpartition("\r")[2] for line in plain.split("\n")]
    return [_RANK_PREFIX.sub("", line) for line in lines]


def last_words(text: str, limit: int = LIMIT) -> str | None:
    """The last line with anything on it."""
    words = (without_box(line) for line in reversed(clean_lines(text)))
    found = next((line for line in words if line and _LAUNCHERS_HINT not in line), None)
    return shorten(found, limit) if found else None


def tail(text: str) -> str | None:
    """The last lines, as an error shows them."""
    return "\n".join(clean_lines(text)[-TAIL_LINES:]).strip("\n") or None


def shorten(text: str, limit: int = LIMIT) -> str:
    """At most `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_RANK_PREFIX = re.compile(r"^\[(?:[a-z]+\d+\]:\[)?rank\d+\]: ?")
_GROUP_PREFIX = re.compile(r"^ {2,}(?:\| ?|\+ (?=Exception Group))")
_FAULT = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+) in ')
_NOT_FATAL = ("Exception ignored in", "Exception in thread", "--- Logging error", "Exception ignored on")
_WRAPPER = re.compile(
    r"^(?:[\w.]*\.)?(?:ChildFailedError|ProcessExitedException|ProcessRaisedException|CalledProcessError"
    r"|SignalException)\b"
)
"""Reports of another process's end: what that process said itself says more."""
_LAUNCHERS_HINT = "leaked semaphore objects to clean up"
_LINKS = {
    "The above exception was the direct cause of the following exception:": "caused by",
    "During handling of the above exception, another exception occurred:": "while handling",
}
_SPAWNED = re.compile(r"^-- Process (\d+) terminated with the following error:$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|/worker/probe/|^<")
_OUR_RECIPES = re.compile(r"/worker/recipes/")


def _ranked(lines: list[str]) -> Iterator[tuple[int, PythonFailure]]:
    """Each traceback's failure, higher the likelier it ended the process."""
    earlier: PythonFailure | None = None
    found = list(blocks(lines))
    for number, block in enumerate(found):
        link = _LINKS.get(block.before, "")
        failure = earlier = _failure(block, earlier if link else None, link, found[number + 1 :])
        own = not block.before.startswith(_NOT_FATAL)
        yield (0 if not own else 1 if _WRAPPER.match(failure.exception) else 2), failure
        if block.is_group:
            return


def _failure(
    block: TracebackBlock, earlier: PythonFailure | None, link: str, later: list[TracebackBlock]
) -> PythonFailure:
    spawned = _SPAWNED.match(block.before)
    exception = _headline(block.message)
    file, line = _users_frame(block.frames)
    if block.is_group and later:  # one of those it holds says what happened
        exception = f"{exception}, the first: {_headline(later[0].message)}"
        file, line = _users_frame(later[0].frames) if later[0].frames else (file, line)
    return PythonFailure(
        shorten(exception), file, line,
        text=shorten(block.message, TEXT_LIMIT),
        functions=tuple(frame.function for frame in block.frames),
        process=int(spawned[1]) if spawned else None,
        earlier=earlier, link=link,
    )  # fmt: skip


def _headline(message: str) -> str:
    """The first line, with those after it that it only announces; of a long one whole sentences."""
    text, *rest = (line.strip() for line in message.splitlines() or [""])
    for line in rest[:MOST_ANNOUNCED]:
        if text.endswith(":"):
            text = f"{text} {line}".strip()
    if len(text) > LIMIT and (end := text.rfind(". ", 60, LIMIT)) > 0:
        text = text[:end]
    return text if text.endswith("..") else text.removesuffix(".")


def _users_frame(frames: list[TracebackFrame]) -> tuple[str | None, int | None]:
    """The last frame that is not in a library, else the last one."""
    own = [frame for frame in frames if not _LIBRARY.search(frame.file) or _OUR_RECIPES.search(frame.file)]
    last = next(iter((own or frames)[-1:]), None)
    return (last.file, last.line) if last else (None, None)


def _syntax_error(lines: list[str]) -> PythonFailure | None:
    """Python names the script's own syntax error without a traceback header."""
    for number in range(len(lines) - 1, -1, -1):
        if re.match(r"^(?:SyntaxError|IndentationError|TabError): ", lines[number]):
            for line in reversed(lines[:number]):
                if frame := re.match(r'^\s*File "(?P<file>.+)", line (?P<line>\d+)', line):
                    exception = shorten(lines[number])
                    return PythonFailure(exception, frame["file"], int(frame["line"]), text=lines[number])
    return None
