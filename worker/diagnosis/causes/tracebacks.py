"""Find the exception that ended a Python process in its output. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

TAIL_LINES = 80
LIMIT = 240
"""Characters of an exception that a sentence shows."""
MOST_ANNOUNCED = 3
"""Lines of a message that are shown while each one ends with a colon."""
TEXT_LIMIT = 4000


@dataclass(frozen=True)
class PythonFailure:
    """An exception as its process printed it."""

    exception: str
    """Type and first line of the text."""
    file: str | None = None
    line: int | None = None
    """Position in the user's own code if the traceback has any of it."""
    text: str = ""
    """The complete text."""
    functions: tuple[str, ...] = ()
    """Functions on the stack, innermost last."""
    process: int | None = None
    """Number of the process, if `mp.spawn` started it."""
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
        """Its text and that of its causes, the latest first."""
        return f"{self.text}\n{self.earlier.all_text}" if self.earlier else self.text


def find_failure(text: str) -> PythonFailure | None:
    """Return the exception of the last traceback, which was not caught.

    Inside a data loader or a spawned process that is the inner exception. Exceptions of threads, of destructors
    and in a launcher's report of another process count only if there is no other.
    """
    lines = [_GROUP_PREFIX.sub("", line) for line in clean_lines(text)]
    ranked = list(_ranked(lines))
    best = max((rank for rank, _ in ranked), default=0)
    return next((failure for rank, failure in reversed(ranked) if rank == best), None) or _syntax_error(lines)


def find_crash(text: str) -> tuple[str, str | None, int | None] | None:
    """Return (error, file, line) of a fatal error that Python's fault handler reported."""
    lines = clean_lines(text)
    for number, line in enumerate(lines):
        if line.startswith("Fatal Python error: "):
            frames = [TracebackFrame(f["file"], int(f["line"]), "") for f in map(_FAULT.match, lines[number:]) if f]
            return line.removeprefix("Fatal Python error: "), *_users_frame(frames[::-1])
    return None


def split_by_rank(text: str) -> dict[int, str]:
    """Split a stream by rank, using the `[rank1]: ` that torch puts before tracebacks."""
    lines_by_rank: dict[int, list[str]] = {}
    for line in _ANSI.sub("", text).split("\n"):
        if match := re.match(r"\[(?:[a-z]+\d+\]:\[)?rank(\d+)\]: ?", line):
            lines_by_rank.setdefault(int(match[1]), []).append(line[match.end() :])
    return {rank: "\n".join(lines) for rank, lines in lines_by_rank.items()}


def clean_lines(text: str) -> list[str]:
    """Split into lines without colours, torch's `[rank1]: ` and overwritten progress bars."""
    plain = _ANSI.sub("", text.replace("\0", ""))
    lines = [line.rstrip().rpartition("\r")[2] for line in plain.split("\n")]
    return [_RANK_PREFIX.sub("", line) for line in lines]


def last_line(text: str, limit: int = LIMIT) -> str | None:
    """Return the last nonempty line, at most `limit` characters."""
    lines = (without_box(line) for line in reversed(clean_lines(text)))
    last = next((line for line in lines if line and not any(hint in line for hint in _NOT_THE_SCRIPTS)), None)
    return shorten(last, limit) if last else None


def tail(text: str) -> str | None:
    """Return the last `TAIL_LINES` lines, None if they are empty."""
    return "\n".join(clean_lines(text)[-TAIL_LINES:]).strip("\n") or None


def shorten(text: str, limit: int = LIMIT) -> str:
    """Cut the text to `limit` characters."""
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
"""Reports of another process's end: that process's own output says more."""
_NOT_THE_SCRIPTS = ("leaked semaphore objects to clean up", "WorkerServer.cpp:")
"""In lines that the launcher, and torch's worker server at its end, print behind the script's last one."""
_LINKS = {
    "The above exception was the direct cause of the following exception:": "caused by",
    "During handling of the above exception, another exception occurred:": "while handling",
}
_SPAWNED = re.compile(r"^-- Process (\d+) terminated with the following error:$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|/worker/probe/|^<")
_OUR_RECIPES = re.compile(r"/worker/recipes/")


def _ranked(lines: list[str]) -> Iterator[tuple[int, PythonFailure]]:
    """Yield (score, failure) of each traceback; a higher score is likelier to have ended the process."""
    earlier: PythonFailure | None = None
    all_blocks = list(blocks(lines))
    for number, block in enumerate(all_blocks):
        link = _LINKS.get(block.before, "")
        failure = earlier = _failure(block, earlier if link else None, link, all_blocks[number + 1 :])
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
    if block.is_group and later:  # its first member says what happened
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
    """Return the first line, joined with the next while it ends with a colon; a long one is cut after a sentence."""
    text, *further_lines = (line.strip() for line in message.splitlines() or [""])
    for line in further_lines[:MOST_ANNOUNCED]:
        if text.endswith(":"):
            text = f"{text} {line}".strip()
    if len(text) > LIMIT and (end := text.rfind(". ", 60, LIMIT)) > 0:
        text = text[:end]
    return text if text.endswith("..") else text.removesuffix(".")


def _users_frame(frames: list[TracebackFrame]) -> tuple[str | None, int | None]:
    """Return file and line of the last frame outside libraries, else of the last frame."""
    own = [frame for frame in frames if not _LIBRARY.search(frame.file) or _OUR_RECIPES.search(frame.file)]
    last = next(iter((own or frames)[-1:]), None)
    return (last.file, last.line) if last else (None, None)


def _syntax_error(lines: list[str]) -> PythonFailure | None:
    """Find a syntax error in the script itself, which Python prints without a traceback header."""
    for number in range(len(lines) - 1, -1, -1):
        if re.match(r"^(?:SyntaxError|IndentationError|TabError): ", lines[number]):
            for line in reversed(lines[:number]):
                if frame := re.match(r'^\s*File "(?P<file>.+)", line (?P<line>\d+)', line):
                    exception = shorten(lines[number])
                    return PythonFailure(exception, frame["file"], int(frame["line"]), text=lines[number])
    return None


# Parse tracebacks as Python, loguru and rich (also typer, Lightning) print them. Pure.

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
