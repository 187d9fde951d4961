"""Run git without prompts or hooks, in a controlled environment, with a time limit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05
KEPT_VARIABLES = frozenset(
    "GIT_SSH GIT_SSH_COMMAND GIT_SSL_CAINFO GIT_SSL_CAPATH GIT_SSL_NO_VERIFY GIT_ASKPASS".split()
)
SAFE_OPTIONS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false",
    "-c", "filter.lfs.smudge=", "-c", "filter.lfs.process=", "-c", "filter.lfs.required=false",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The result of a git command."""

    code: int
    out: bytes
    err: str

    @property
    def complaint(self) -> str:
        """Git's error message, on one line."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        fatal = next((i for i, line in enumerate(lines) if line.startswith(("fatal:", "error:"))), None)
        if fatal is None:
            return lines[-1] if lines else "it printed no message"
        if fatal and "Could not read from remote" in lines[fatal]:
            return lines[fatal - 1]  # ssh's own words
        return lines[fatal].partition(": ")[2]


class GitTooSlow(Exception):
    """Git was killed because it exceeded its time limit."""


class GitTooLarge(Exception):
    """Git was killed because it fetched more than the limit."""


def has_git() -> bool:
    """Whether git is installed."""
    return shutil.which("git") is not None


def ask(folder: Path, *arguments: str) -> Outcome:
    """Run a git query on a local checkout; a query that takes too long returns code -1."""
    try:
        return git(folder, *arguments)
    except GitTooSlow:
        return Outcome(-1, b"", "it took too long")


def git(
    folder: Path,
    *arguments: str,
    options: Sequence[str] = (),
    protocols: str = "",
    limit_s: float = 20.0,
    is_too_large: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run a git command in a folder; `protocols` are the allowed ones. Raises GitTooSlow, GitTooLarge."""
    command = ["git", *SAFE_OPTIONS, *options, *arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(protocols), stdin=subprocess.DEVNULL, stdout=out,
            stderr=err, start_new_session=True,  # without a terminal, nothing can ask for a password
        )  # fmt: skip
        try:
            _wait(process, limit_s, is_too_large)
        finally:
            _end(process)
        out.seek(0)
        err.seek(0)
        return Outcome(process.returncode, out.read(), err.read(65_536).decode(errors="replace"))


def _wait(process: subprocess.Popen[bytes], limit_s: float, is_too_large: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + limit_s
    pause_s = 0.002
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause_s)
            return
        if time.monotonic() > ends_at:
            raise GitTooSlow
        if is_too_large():
            raise GitTooLarge
        pause_s = min(0.5, pause_s * 2)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(protocols: str) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in KEPT_VARIABLES}
    return {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=15"} | own | {
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }  # fmt: skip
