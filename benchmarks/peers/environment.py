"""The peers' own environment, and a process in it that measures one round each time it is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
PYTHON = HERE / ".venv" / "bin" / "python"
REQUIREMENTS = HERE / "requirements.txt"
INSTALLED = HERE / ".venv" / "installed.txt"
"""The requirements once all of them are there; written last, so that a half-made environment is made again."""


def install() -> None:
    """Make the environment where it is missing, unfinished or of other requirements; takes minutes.

    Raises CalledProcessError.
    """
    if is_installed():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(HERE / ".venv")], check=True)
    subprocess.run([str(PYTHON), "-m", "pip", "install", "-q", "-r", str(REQUIREMENTS)], check=True)
    INSTALLED.write_text(REQUIREMENTS.read_text())


def is_installed() -> bool:
    """Whether all requirements of now are there."""
    return INSTALLED.exists() and INSTALLED.read_text() == REQUIREMENTS.read_text()


class Peer:
    """A script of this folder at work in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def round(self, size: int) -> float:
        """Let it do one round of that size; returns the seconds that it measured. Raises EOFError if it has ended."""
        stdin, stdout = self._pipes()
        stdin.write(f"{size}\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise EOFError(f"the peer ended with exit code {self._process.wait()}; its output stands above")
        return float(json.loads(line))

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin and self._process.stdout
        return self._process.stdin, self._process.stdout


@contextmanager
def peer(script: str, *arguments: str) -> Iterator[Peer]:
    """Start a script of this folder in the peers' environment; it is ended afterwards."""
    install()
    command = [str(PYTHON), str(HERE / script), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Peer(process)
        finally:
            assert process.stdin
            process.stdin.close()  # the end of its rounds
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
