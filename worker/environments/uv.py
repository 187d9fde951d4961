"""Runs uv, or another program that installs packages, and says in a sentence what went wrong and with which package."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from domain.masking.masking import MASK, is_secret_variable, masked_text
from worker.environments.pip_settings import uv_variables

LOOK_S = 0.1
KEPT_BYTES = 64 * 1024
"""Read of the end of what a program printed."""
_PACKAGE = re.compile(
    r"`(?P<quoted>[A-Za-z0-9][\w.-]*(?:==[^`@ ]+| @ [^`]+)?)`|no version(?:s)? of (?P<version>[\w.-]+(?:==[\w.+!-]+)?)"
    r"|(?:Because|and) (?P<found>[A-Za-z0-9][\w.-]*) was not found|(?:Built|build) (?P<built>[\w.-]+) @"
    r"|Failed to fetch: `?https?://\S+/(?P<fetched>[\w.-]+)/`?(?:\s|$)"
)
_REPOSITORY = re.compile(r"(?:://|git@)[^\s'`]*/([\w.-]+?)(?:\.git)?/?['`\s]")
_FULL = re.compile(r"(?i)no space left on device|disk quota exceeded|os error (28|122)\b")
IsStopped = Callable[[], bool]


class Stopped(Exception):
    """The attempt was stopped meanwhile."""


class ProgramMissing(Exception):
    """A program that builds the environment is not on this node; the message is a sentence."""


@dataclass
class ProgramFailed(Exception):
    """A program that installs packages failed."""

    output: str
    """The end of what it printed, secrets masked."""

    @property
    def package(self) -> str | None:
        """The package that it names first, NAME or NAME==VERSION; of a repository, its name."""
        if self.is_git and (repository := _REPOSITORY.search(self._errors)):
            return repository[1]
        match = _PACKAGE.search(self._errors)
        return next((text for text in match.groups() if text), None) if match else None

    @property
    def is_network(self) -> bool:
        """Whether an index or a file could not be reached."""
        return is_unreachable(self._errors)

    @property
    def is_git(self) -> bool:
        """Whether a repository could not be fetched."""
        return "Git operation failed" in self._errors

    @property
    def is_full(self) -> bool:
        """Whether the disk was full."""
        return _FULL.search(self.output) is not None

    @property
    def cause(self) -> str:
        """The errors that the program printed, as one line."""
        lines = [re.sub(r"^(error|cause|Caused by|hint):\s*", "", line.strip()) for line in self._errors.splitlines()]
        text = "; ".join(dict.fromkeys(line.rstrip(".") for line in lines if line))
        return text if len(text) <= 600 else f"{text[:300]} … {text[-300:]}"

    @property
    def _errors(self) -> str:
        return self.output[max(self.output.rfind("\nerror:"), 0) :]


def is_unreachable(errors: str) -> bool:
    """Whether a program's errors say that an index or a file could not be reached."""
    return _NO_NETWORK.search(errors) is not None


_NO_NETWORK = re.compile(
    r"(?i)network (connectivity is|was) disabled|error sending request|dns error|failed to lookup|could not connect"
    r"|connection (refused|reset)|network (is )?unreachable|no route to host|timed out|tcp connect error"
    r"|client error \(connect\)"
)


def program(name: str = "uv") -> str:
    """Return the path of uv: of the wheel installed with this worker, or on PATH. Raises ProgramMissing."""
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return str(beside)
    if (on_path := shutil.which(name)) is not None:
        return on_path
    raise ProgramMissing(f"There is no {name} on this node: install it there, or choose an environment with --python.")


def settings(own: Mapping[str, str], of_run: Mapping[str, str], cache: Path | None) -> dict[str, str]:
    """Return the environment for uv: the node's and the run's index settings, those for pip translated.

    `cache`: the folder of downloads, where it is not uv's own choice."""
    variables = {**own, **{name: value for name, value in of_run.items() if name.startswith(("UV_", "PIP_"))}}
    env = {
        name: value for name, value in variables.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")
    }
    env |= uv_variables(variables)
    if cache is not None:
        env["UV_CACHE_DIR"] = str(cache)
    return env | {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", "UV_PREVIEW_FEATURES": "pylock"}


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    log: Path,
    is_stopped: IsStopped,
    *,
    tell: Callable[[str], None] = lambda _: None,
    keeps_open: Sequence[int] = (),
    clock: Clock = SYSTEM_CLOCK,
) -> str:
    """Run a program to its end in a folder, its errors in the file `log`; return what it printed.

    `tell` gets its latest line now and then. The descriptors stay open in it, so that a lock outlives a killed worker.
    Raises ProgramFailed, Stopped, OSError."""
    with log.open("wb") as errors, log.with_suffix(".out").open("wb+") as output:
        process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            pass_fds=keeps_open,
        )
        try:
            _follow(process, log, is_stopped, tell, clock)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        printed = output.read().decode(errors="replace")
    log.with_suffix(".out").unlink()
    if process.returncode:
        raise ProgramFailed(masked(f"{_end(log)}\n{printed[-2000:]}".strip(), env))
    return printed


def masked(text: str, env: Mapping[str, str]) -> str:
    """Return what a program printed with passwords in addresses and the values of secret variables masked."""
    for name, value in env.items():
        if len(value) >= 4 and is_secret_variable(name, value):
            text = text.replace(value, MASK)
    return masked_text(text)


def _follow(
    process: subprocess.Popen[bytes], log: Path, is_stopped: IsStopped, tell: Callable[[str], None], clock: Clock
) -> None:
    last, told_at = "", clock.now()
    while process.poll() is None:
        if is_stopped():
            raise Stopped
        clock.pause(LOOK_S)
        if clock.now() - told_at >= 1:
            lines = _end(log).split("\n")
            line = next((line.strip() for line in reversed(lines) if line.strip()), "")
            if line != last:
                tell(line)
            last, told_at = line, clock.now()


def _end(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - KEPT_BYTES))
        return file.read().decode(errors="replace")
