"""The machine that the rows run on: what it has, the product on it, and the time that is left."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.end_to_end.product import ENDED, SLOW_PAUSE_S, Product, wait_for

SCRIPTS = Path(__file__).parent / "scripts"
RECIPES = Path(__file__).parents[2] / "worker" / "recipes"
RUN_S = 180.0
"""Longest time of a run; one that compiles its model is the longest."""


class Lacking(Exception):
    """A row needs what this machine does not have; the message names it."""


class Wrong(Exception):
    """The product did something else than it should; the message says what."""


@dataclass
class Machine:
    """A running product and the devices it trains on."""

    product: Product
    folder: Path
    """For whatever the rows write."""
    kind: Literal["cuda", "cpu"]
    devices: int
    ends_at: float
    """When time is up, by time.monotonic()."""

    @property
    def is_small(self) -> bool:
        """Whether rows only show that they run: a CPU instead of a GPU."""
        return self.kind == "cpu"

    def limit_s(self, most: float = RUN_S) -> float:
        """Seconds that a wait may take. Raises Wrong where none are left."""
        left = self.ends_at - time.monotonic()
        if left < 1:
            raise Wrong("no time was left for it")
        return min(most, left)

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """Raise Wrong in the block when time is up, whatever it waits for, and before it where it is up already."""
        left = self.limit_s(float("inf"))
        before = signal.signal(signal.SIGALRM, _time_is_up)
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def end_runs(self) -> None:
        """Stop what a row that failed has left, so that the next one finds the devices free."""
        for run in self.product.get("/api/runs?limit=1000"):
            if run["state"] not in ENDED:
                self.product.request("POST", f"/api/runs/{run['id']}/stop")

    def need(self, needed: str, is_there: bool) -> None:
        """Raise Lacking where it is not there."""
        if not is_there:
            raise Lacking(needed)

    def need_gpu(self) -> None:
        """Raise Lacking where rows run on a CPU."""
        self.need("a GPU", self.kind == "cuda")

    def train(self, target: str | Path, state: str = "succeeded", **spec: Any) -> dict[str, Any]:
        """Launch a run and wait for its end. Raises Wrong where it ends in another state."""
        return self.ended(self.product.launch(target, **{"gpus_per_node": 1, **spec}), state)

    def ended(self, run_id: str, state: str = "succeeded") -> dict[str, Any]:
        """Wait for a run's end. Raises Wrong where it ends in another state, or too late."""
        run = self.wait(lambda: (run := self.product.run(run_id))["state"] in ENDED and run, f"the end of run {run_id}")
        if run["state"] != state:
            raise Wrong(f"{run['name']} {run['state']} instead of {state}: {run['message'] or run['reason']}")
        return dict(run)

    def wait(self, condition: Any, subject: str, most_s: float = RUN_S) -> Any:
        """Wait until a condition gives something true, and return that. Raises Wrong where it takes too long."""
        try:
            return wait_for(condition, subject, self.limit_s(most_s), pause_s=SLOW_PAUSE_S)
        except AssertionError as error:
            raise Wrong(str(error).splitlines()[0]) from None

    def last(self, run: str, name: str, source: str = "events") -> float:
        """The last value of a series. Raises Wrong where there is none."""
        return self.points(run, name, source)[-1][1]

    def points(self, run: str, name: str, source: str = "events") -> list[list[float]]:
        """A series as [step, value, wall time]. Raises Wrong where it is empty."""
        series = self.product.get(f"/api/runs/{run}/metrics?source={source}")
        if not series.get(name):
            raise Wrong(f"run {run} has no series {name}, only {', '.join(sorted(series))}")
        return list(series[name])

    @contextmanager
    def beside(self, argv: list[str | Path], **env: str) -> Iterator[subprocess.Popen[str]]:
        """A process of this interpreter that is no run of the product; it ends with the block."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")} | env
        process = subprocess.Popen(
            [sys.executable, *map(str, argv)], cwd=self.folder, env=outside, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def by_hand(self, argv: list[str | Path], **env: str) -> str:
        """What a process of this interpreter prints that trains without the product. Raises Wrong where it fails."""
        with self.beside(argv, **env) as process:
            try:
                text, _ = process.communicate(timeout=self.limit_s())
            except subprocess.TimeoutExpired:
                raise Wrong(f"{Path(argv[0]).name} by hand took too long") from None
        if process.returncode:
            raise Wrong(f"{Path(argv[0]).name} by hand ended with {process.returncode}: {text[-300:]}")
        return text


def _time_is_up(*_: object) -> None:
    raise Wrong("it was not done when time was up")


NAMES = "import json, torch; count = torch.cuda.device_count() if torch.cuda.is_available() else 0; " + (
    "print(json.dumps([torch.cuda.get_device_name(number) for number in range(count)]))"
)


def gpu_names() -> list[str]:
    """The GPUs that this Python's torch can use; empty without torch, a driver or a GPU.

    Asked in a process of its own: one that holds a GPU would keep runs from it."""
    process = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=False)
    return list(json.loads(process.stdout.splitlines()[-1])) if process.returncode == 0 else []


def nvidia_smi(query: str, ask: Any = subprocess.run) -> list[dict[str, float]]:
    """Numbers of each GPU by nvidia-smi, in its units; what it does not know is left out. Raises Lacking without it."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        text = ask(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise Lacking("nvidia-smi") from None
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [{name: float(cell) for name, cell in zip(query.split(","), row, strict=True) if _is_number(cell)}
            for row in rows]  # fmt: skip


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit()
