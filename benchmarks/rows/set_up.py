"""`make setup` and `make demo` in a fresh clone, against installing the bare packages and the bare torchrun by hand.

It needs the network for minutes, so no test runs it. Both take turns: what the network does, it does to both.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from benchmarks.figures import Figure, Spread, in_turns, ratios
from benchmarks.rows.start import BY_HAND
from cli.up import parent
from domain.launch.plan import TaskContext, plan
from domain.spec import RunSpec
from tests.end_to_end.product import Product, wait_for

ROOT = Path(__file__).parents[2]
BARE = ("torch", "streamlit", "sqlalchemy", "tensorboard", "psutil")
"""No program of this kind does without them."""
PAIRS = {
    "make setup from nothing": ("setup", f"pip install {' '.join(BARE)}", "pip", 1.0),
    "make demo to its first point": ("demo", "torchrun by hand", "torchrun", 1.2),
}
"""What -> our act, the peer and its act, and the most that ours may take of its time."""
LIMIT_S = 600.0
END_LIMIT_S = 60.0


def measure(quick: bool) -> Iterator[Figure]:
    """Seconds of the installations with pip's cache empty, and of the trainings until their first point."""
    with tempfile.TemporaryDirectory() as folder:
        newcomer = Newcomer(Path(folder))
        acts: dict[str, Callable[[], float]] = {
            "setup": newcomer.sets_up,
            "pip": newcomer.installs_bare_packages,
            "demo": newcomer.sees_the_demo,
            "torchrun": newcomer.trains_by_hand,
        }
        seconds = in_turns(acts, 1 if quick else 3)
    for what, (act, peer, of_peer, most) in PAIRS.items():
        ours, theirs = seconds[act], seconds[of_peer]
        yield Figure(what, f"{Spread.of(ours)} s", peer, f"{Spread.of(theirs)} s", ratios(ours, theirs), most, "less")


class Newcomer:
    """A person with a clone of the last commit and an empty home."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone, self.home = folder, folder / "rankzero", folder / "home"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.clone)], check=True)
        self.env = _environment(folder, self.home)
        self.demos = 0

    def sets_up(self) -> float:
        """Seconds of `make setup`."""
        self._forget(self.clone / ".venv")
        return self._seconds(["make", "setup", f"PYTHON={sys.executable}"])

    def installs_bare_packages(self) -> float:
        """Seconds for a virtual environment with the bare packages, of the same versions."""
        venv = self.folder / "bare"
        self._forget(venv)
        install = ["-m", "pip", "install", "-qq", "-c", "constraints.txt", *BARE]
        return self._seconds([sys.executable, "-m", "venv", str(venv)]) + self._seconds(
            [str(venv / "bin" / "python"), *install]
        )

    def sees_the_demo(self) -> float:
        """Seconds from `make demo` until the server has its first point."""
        self.demos += 1
        product = Product(self.folder / f"data{self.demos}", env=self.env)
        command = ["make", "demo", f"DATA={product.data}", f"PORT={product.port}"]
        try:
            return seconds_until(lambda: _has_point(product), command, self.clone, product.env)
        finally:
            product.clean_up()

    def trains_by_hand(self) -> float:
        """Seconds from the demo's torchrun until its event file has a point."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        programs = self.clone / ".venv" / "bin"
        context = TaskContext(
            python=str(programs / "python"), torchrun=str(programs / "torchrun"), attempt_dir=str(folder)
        )
        command = plan(RunSpec(**parent.demo_spec(parent.DEMO_RANKS)), context).argv
        return seconds_until(lambda: _has_logged(folder), command, folder, self.env | BY_HAND)

    def _forget(self, venv: Path) -> None:
        """Remove an installation and everything that pip has cached."""
        for folder in (venv, self.home):
            shutil.rmtree(folder, ignore_errors=True)
        self.home.mkdir()

    def _seconds(self, command: list[str]) -> float:
        began = time.monotonic()
        subprocess.run(command, cwd=self.clone, env=self.env, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began


def seconds_until(
    condition: Callable[[], bool], command: tuple[str, ...] | list[str], cwd: Path, env: Mapping[str, str]
) -> float:
    """Seconds from the start of a command until the condition holds; it is ended as by Ctrl-C then."""
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:  # fmt: skip
        try:
            wait_for(lambda: condition() or process.poll() is not None, "the first point", LIMIT_S)
            assert process.poll() is None, f"{command[0]} ended before its first point"
            return time.monotonic() - began
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(END_LIMIT_S)


def _environment(folder: Path, home: Path) -> dict[str, str]:
    """Our environment with another home, but where pip looks for packages, and with our build of torch.

    Where that is the build for the CPU, the one for CUDA would cost gigabytes of downloads."""
    torch = folder / "torch.txt"
    torch.write_text(f"torch=={version('torch')}\n")
    config = os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config"))
    own = {"HOME": str(home), "XDG_CONFIG_HOME": config, "PIP_CONSTRAINT": str(torch)}
    habits = ("PYTHONDONTWRITEBYTECODE", "XDG_CACHE_HOME", "PIP_CACHE_DIR", "MAKEFLAGS", "MAKELEVEL")
    return {name: value for name, value in os.environ.items() if name not in habits} | own


def _has_point(product: Product) -> bool:
    """Whether the demo's run has a point on the server, which may not answer yet."""
    with suppress(Exception):
        (run,) = product.get("/api/runs")
        return bool(product.get(f"/api/runs/{run['id']}/metrics?max_points=10"))
    return False


def _has_logged(folder: Path) -> bool:
    """Whether an event file below the folder has a scalar."""
    events: list[Any] = [event for path in folder.rglob("*.tfevents.*") for event in EventFileLoader(str(path)).Load()]
    return any(event.summary.value for event in events)
