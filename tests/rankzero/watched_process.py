"""Scripts and notebooks that watch themselves, and what they leave in their data directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.end_to_end.product import wait_for
from tests.worker.probe.loggers import logged
from worker.node import processes

NO_SERVER = {"RANKZERO_URL": "http://127.0.0.1:9", "RANKZERO_TOKEN": "unused"}
"""A server that never answers: what is written stays where a test finds it."""


class WatchedProcess:
    """The data directory of processes that watch themselves; ends their companions with the `with` block."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        self.folder, self.data = folder, folder / "data"
        own = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
        paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), own.get("PYTHONPATH")]))
        self.env = own | {"RANKZERO_DATA": str(self.data), "PYTHONPATH": paths} | (env or NO_SERVER)

    def __enter__(self) -> WatchedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        def is_companion(arguments: list[str]) -> bool:
            return any(argument.startswith(str(self.data)) for argument in arguments)

        for process in processes.with_arguments(is_companion):
            processes.send_signal(process, signal.SIGKILL)

    def start(self, text: str, *options: str, **env: str) -> subprocess.Popen[str]:
        script = self.folder / "train.py"
        script.write_text(textwrap.dedent(text))
        return subprocess.Popen(
            [sys.executable, *options, str(script)], env=self.env | env, cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, text: str, *options: str, **env: str) -> Ended:
        process = self.start(text, *options, **env)
        out, err = process.communicate(timeout=120)
        return Ended(process.returncode, out, err)

    @property
    def attempts(self) -> list[WatchedAttempt]:
        """The attempts of all runs, the oldest first."""
        folders = [path.parent / "attempt" for path in self.data.glob("watched/*/watch.json")]
        return sorted(map(WatchedAttempt, folders), key=lambda attempt: attempt.state["started_at"])

    @property
    def attempt(self) -> WatchedAttempt:
        (attempt,) = self.attempts
        return attempt


class Ended:
    """A process that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class WatchedAttempt:
    """What one watched process wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "supervisor.json").read_text()))

    @property
    def watched(self) -> dict[str, Any]:
        return dict(json.loads((self.folder.parent / "watch.json").read_text()))

    def log(self, name: str) -> str:
        return (self.folder / "logs" / name).read_text()

    def points(self) -> dict[str, logged.Curve]:
        """The figures, by name, as the worker reads them."""
        return logged.curves(self.folder)

    def records(self) -> list[dict[str, Any]]:
        """The probe's records of all ranks."""
        files = sorted((self.folder / "probe").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def reaches(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the state fulfils the condition, and return it."""
        wait_for(lambda: condition(self.state), "the state of a watched process", explain=lambda: str(self.state))
        return self.state
