"""Say what a shell script starts, so that it can be launched instead: its torchrun or python line, read and not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from domain.masking.masking import masked_args, masked_env
from domain.spec import RENDEZVOUS_VARIABLES, RESERVED_VARIABLES


def advice(content: bytes, field: str) -> str:
    """Return a sentence on how the program that a shell script starts is launched.

    `field`: where the script was named; as an entry, its folder is the target."""
    text = content.decode(errors="replace")
    start = next((start for number, line in _lines(text) if (start := _start(number, line))), None)
    if start is None:
        return "Launch the Python file that it starts, or, with --launcher python, one that runs it as a subprocess."
    command = start.command(_exported(text), is_entry=field == "entry")
    return f"Launch what its line {start.line} starts: `{command}`."


LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
LAUNCHING_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_PYTHON = re.compile(r"python[\d.]*|\$\{?\w*(PY|PYTHON)\w*\}?", re.IGNORECASE)
_COUNT = re.compile(r"--(nproc[-_]per[-_]node|num[-_]processes|num[-_]gpus)")
_ENDS = re.compile(r"[|&;<>()]+|\d?>+.*")
_EXPORT = re.compile(r"(?m)^\s*export\s+([A-Za-z_]\w*)=(\S+)\s*$")


@dataclass(frozen=True)
class StartLine:
    """A line that starts a Python program."""

    line: int
    script: str | None
    module: str | None
    ranks: str | None
    """Processes per node, where the line has a number."""
    is_launched: bool
    """Whether torchrun or the like starts it, not Python alone."""
    args: tuple[str, ...]

    def command(self, exported: dict[str, str], *, is_entry: bool) -> str:
        """Return the command line that launches it."""
        words = [] if is_entry else ["rankzero", "launch"]
        if self.module:
            words += ["--module", self.module] if is_entry else [".", "--module", self.module]
        else:
            words += ["--entry", self.script or ""] if is_entry else [self.script or ""]
        words += ["--gpus-per-node", self.ranks] if self.ranks else []
        words += [] if self.is_launched else ["--launcher", "python"]
        for name, text in masked_env(exported).items():
            words += ["--env", f"{name}={text}"]
        return " ".join(_quoted(token) for token in [*words, *(["--", *masked_args(self.args)] if self.args else [])])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each command with the number of its first line; a backslash joins lines."""
    number, begun = 0, ""
    for count, line in enumerate(text.splitlines(), 1):
        number = number if begun else count
        begun += line
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        yield number, begun
        begun = ""


def _start(number: int, line: str) -> StartLine | None:
    words = _words(line)
    first = next((i for i, token in enumerate(words) if _is_program(token)), None)
    if first is None:
        return None
    after = words[first + 1 :]
    is_launched = words[first].rpartition("/")[2] in LAUNCHERS
    position, module = None, None
    for index, token in enumerate(after):
        if token.endswith(".py") and position is None:
            position = index
        elif token == "-m" and index + 1 < len(after) and position is None:
            if after[index + 1] not in LAUNCHING_MODULES:
                position, module = index + 1, after[index + 1]
            is_launched = is_launched or after[index + 1] in LAUNCHING_MODULES
    if position is None:
        return None
    script = None if module else after[position]
    return StartLine(number, script, module, _ranks(after[:position]), is_launched, tuple(after[position + 1 :]))


def _words(line: str) -> list[str]:
    """Split a command as a shell does, up to what ends it; an unclosed quotation mark makes none."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return []
    first = next((i for i, token in enumerate(words) if _is_program(token)), 0)
    end = next((i for i, token in enumerate(words) if i > first and _ENDS.fullmatch(token)), len(words))
    words = words[:end]
    return words[:-1] if end and words[-1:] == ["2"] else words  # of 2>&1


def _is_program(text: str) -> bool:
    name = text.rpartition("/")[2]
    return name in LAUNCHERS or _PYTHON.fullmatch(name) is not None


def _ranks(options: Sequence[str]) -> str | None:
    for token, after in zip(options, [*options[1:], ""], strict=False):
        option, equals, text = token.partition("=")
        number = text if equals else after
        if _COUNT.fullmatch(option) and number.isdigit():
            return number
    return None


def _exported(text: str) -> dict[str, str]:
    """Return the variables that the script exports as plain texts, but for those that a run may not set."""
    return {
        name: value.strip("\"'")
        for name, value in _EXPORT.findall(text)
        if "$" not in value and "`" not in value and name not in RESERVED_VARIABLES | RENDEZVOUS_VARIABLES
    }


def _quoted(text: str) -> str:
    """Quote a text for a shell; one with a variable in double quotes, so that the shell fills it in."""
    return f'"{text}"' if "$" in text and '"' not in text else shlex.quote(text)
