"""The folder of an installation: versions of Rankzero, the worker's options, data and log."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domain.network.trust import CA_FILE
from worker.node.processes import is_locked

LARGEST_LOG_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Home:
    """The folder, and what is where in it."""

    path: Path

    @property
    def current(self) -> Path:
        """A link to the version that starts next; trainings of an older one keep running from its own folder."""
        return self.path / "current"

    @property
    def python(self) -> Path:
        """The interpreter of the version that starts next, by a path that is of no other version."""
        return self.current.resolve() / "bin/python"

    @property
    def data(self) -> Path:
        """The worker's data directory."""
        return self.path / "data"

    @property
    def join_token(self) -> Path:
        """The file with the join token, there only until the node has joined."""
        return self.path / "join-token"

    @property
    def certificates(self) -> Path:
        """The file of the certificates that are trusted for the dashboard, where the system's do not do."""
        return self.path / "certificates.pem"

    def trust(self, certificates: str | None = None) -> None:
        """Let this process and what it starts trust the certificates in the file, or these from now on."""
        if certificates:
            write(self.certificates, certificates)
        if self.certificates.exists():
            os.environ[CA_FILE] = str(self.certificates)

    @property
    def log(self) -> Path:
        """The worker's log."""
        return self.path / "worker.log"

    @property
    def options(self) -> dict[str, Any]:
        """The worker's options: `server`, and `name`, `python`, `slots`, `run_as` where the node decides not itself."""
        return read(self.path / "worker.json")

    @property
    def identity(self) -> dict[str, Any]:
        """The name and id under which the node has joined, with its own token."""
        return read(self.data / "node/node.json")

    def worker_runs(self) -> bool:
        """Whether a worker serves this data directory."""
        return is_locked(self.data / "node/lock")

    def last_contact(self) -> float:
        """Return when the dashboard answered last, in seconds since 1970; 0 where it never did."""
        try:
            return (self.data / "node/contact").stat().st_mtime
        except OSError:
            return 0.0

    def switch_to(self, version: str) -> None:
        """Let the worker start from this version next."""
        new = self.path / f"current.{os.getpid()}"
        new.symlink_to(Path("versions") / version)
        new.replace(self.current)

    def remove_unused_versions(self) -> None:
        """Remove older versions, but those from which a process still runs."""
        versions = [version.resolve() for version in (self.path / "versions").iterdir()]
        old = {os.fsencode(version) + b"/": version for version in versions if version != self.current.resolve()}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # another user's
                process_bytes = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                old = {named: version for named, version in old.items() if named not in process_bytes}
        for version in old.values():
            shutil.rmtree(version, ignore_errors=True)

    def last_lines(self, count: int = 1) -> list[str]:
        """Return the last lines of the worker's log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 8192))
                return [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()][
                    -count:
                ]
        except OSError:
            return []


def read(path: Path) -> dict[str, Any]:
    """Return a JSON object; empty where the file is missing or unreadable."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def write(path: Path, text: str) -> None:
    """Write a file atomically, readable by this user only. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


def worker_command(home: Home) -> list[str]:
    """The command line of the worker, with the options from the folder."""
    options = home.options
    command = [str(home.python), "-P", "-m", "cli.main", "worker", "--data", str(home.data)]
    for name in ("server", "name", "python", "slots"):
        command += [f"--{name}", str(options[name])] if options.get(name) else []
    command += [part for entry in options.get("run_as") or [] for part in ("--run-as", entry)]
    return [*command, "--token-file", str(home.join_token)]


def become_worker(home: Home) -> None:
    """Become the worker: its options from the folder, its output in the log. Raises OSError."""
    command = worker_command(home)
    if home.log.exists() and home.log.stat().st_size > LARGEST_LOG_BYTES:
        home.log.replace(home.log.with_name("worker.log.1"))
    log = os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    os.execv(command[0], command)
