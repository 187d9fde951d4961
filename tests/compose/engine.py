"""A Docker engine for the tests: the one that runs here, or one of our own that leaves no trace of itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BASE = "python:3.11-slim"
OUR_BASE = "rankzero-test-base"
SUITE = "bookworm"
"""The Debian whose `python3` is 3.11."""
PACKAGES = "python3,python3-venv,ca-certificates"
START_LIMIT_S = 300.0
UNTOUCHED = ("--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false")
"""The machine's own network stays as it is; containers reach each other, and a build is given the machine's."""

BOUND_TO_US = ("setpriv", "--pdeathsig", "TERM", "unshare", "--mount")
"""It ends when we die, and what it mounted is gone with it."""


@dataclass(frozen=True)
class Engine:
    """Where `docker` and `docker-compose` find it, and the image that ours is made from."""

    env: dict[str, str]
    base: str

    def run(self, *argv: str, timeout_s: float = 120) -> str:
        """What a command prints; it must work."""
        done = subprocess.run(
            argv, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s
        )
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout[-6000:]}{done.stderr[-6000:]}"
        return done.stdout


@contextmanager
def engine(keep: Path | None) -> Iterator[Engine]:
    """The engine that answers; else one of our own, whose images stay in the folder `keep` if there is one."""
    if shutil.which("docker") and _answers(dict(os.environ)):
        yield _with_base(dict(os.environ))
        return
    folder = Path(tempfile.mkdtemp(prefix="rankzero-engine-"))
    env = dict(os.environ) | {"DOCKER_HOST": f"unix://{folder}/socket"}
    try:
        with _daemon(folder, keep or folder / "data", env):
            yield _with_base(env)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _daemon(folder: Path, images: Path, env: dict[str, str]) -> Iterator[None]:
    where = [f"--data-root={images}", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    program = [*BOUND_TO_US, shutil.which("dockerd") or "/usr/sbin/dockerd"]
    log = folder / "log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [*program, *where, f"--host={env['DOCKER_HOST']}", *UNTOUCHED], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not _answers(env):
            said = log.read_text(errors="replace")[-6000:]
            assert daemon.poll() is None, f"no Docker engine can be started here: {said}"
            assert time.monotonic() < deadline, f"the Docker engine does not answer: {said}"
            time.sleep(0.2)
        yield
    finally:
        daemon.terminate()
        daemon.wait(300)


def _answers(env: dict[str, str]) -> bool:
    return subprocess.run(["docker", "info"], env=env, capture_output=True, check=False).returncode == 0


def _with_base(env: dict[str, str]) -> Engine:
    """What the Dockerfile names, or a Debian of our own with a Python of the same version."""
    for known in (BASE, OUR_BASE):
        if _succeeds(["docker", "image", "inspect", known], env):
            return Engine(env, known)
    if _succeeds(["docker", "pull", BASE], env):
        return Engine(env, BASE)
    folder = Path(tempfile.mkdtemp(prefix="rankzero-base-"))
    try:
        made = Engine(env, OUR_BASE)
        bootstrap = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder)]
        made.run(*bootstrap, timeout_s=900)
        made.run("sh", "-c", 'tar -C "$1" -c . | docker import - "$2"', "import", str(folder), OUR_BASE)
        return made
    finally:
        shutil.rmtree(folder)


def _succeeds(argv: list[str], env: dict[str, str]) -> bool:
    return subprocess.run(argv, env=env, capture_output=True, check=False).returncode == 0
