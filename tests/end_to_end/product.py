"""The whole product as a user starts it: `rankzero up` on a data directory of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psutil

from worker.launch.warm import PREPARING

WAIT_S = 300.0
PAUSE_S = 0.05
SLOW_PAUSE_S = 0.2
"""Between two looks at what does not pass by unseen: an end, a step. Each look costs the server some CPU."""
ENDED = ("succeeded", "failed", "stopped")
NICER = 5
"""The nice value of a training whose speed does not matter; at 19 it could not even stop in time."""
WITHOUT_TLS: dict[str, Any] = {"trust_env": False, "verify": False}
"""For requests in plain HTTP: else each new client reads all certificates, which takes 25 ms of CPU."""
QUIET = {"RANKZERO_PREFLIGHT_BANDWIDTH": "false"}
"""Else the first run on several nodes would wait for torch and an all-reduce of two seconds."""


class Product:
    """A running dashboard and worker; `stop` proves that nothing of them is left."""

    def __init__(self, data: Path, slots: int = 2, env: dict[str, str] | None = None, has_worker: bool = True) -> None:
        self.data = data
        self.slots = slots
        self.has_worker = has_worker
        self.python = sys.executable
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        own = {k: v for k, v in os.environ.items() if not k.startswith("RANKZERO_")}
        self.env = own | QUIET | (env or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.log = data.parent / f"{data.name}-up.log"

    def start(self) -> None:
        """Start it and wait until it answers and its worker has registered."""
        argv = [self.python, "-P", "-m", "cli.main", "up", "--port", str(self.port)]
        argv += ["--data", str(self.data), "--slots", str(self.slots)]
        argv += [] if self.has_worker else ["--no-worker"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=self.env, start_new_session=True)
        wait_for(self._answers, "the dashboard to answer", explain=self.tail)
        if self.has_worker:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until a node can start a run."""
        wait_for(
            lambda: any(map(is_ready_to_start, self.get("/api/nodes"))),
            "a node to be ready",
            explain=self.tail,
        )

    def stop(self, timeout_s: float = WAIT_S) -> int:
        """Ctrl-C, then proof that no process is left; returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout_s)
        wait_for(lambda: not self.processes(), "every process to be gone", explain=self._who_is_left)
        assert self.left_out() == []
        return code

    def left_out(self) -> list[tuple[str, str]]:
        """The quarantines of nodes and devices in its store: nothing of a test but one about them deserves any."""
        if not (self.data / "rankzero.db").exists():
            return []
        with closing(sqlite3.connect(self.data / "rankzero.db")) as store:
            return store.execute("select device, why from quarantines").fetchall()

    def clean_up(self) -> None:
        """After a failed test: end whatever carries this data directory."""
        for process in self.processes():
            safely(process.kill, None)
        psutil.wait_procs(self.processes(), timeout=60)

    def processes(self) -> list[psutil.Process]:
        """Every process of this product, trainings included."""
        return [p for p in psutil.process_iter() if p.pid != os.getpid() and self._owns(p)]

    def child(self, command: str) -> psutil.Process | None:
        """The dashboard's or the worker's process."""
        for process in self.processes():
            line = safely(process.cmdline, [])
            if command in line and str(self.data) in line and "--attempt" not in line:
                return process
        return None

    def ranks(self, run_id: str) -> dict[int, psutil.Process]:
        """The training processes of a run by rank."""
        by_pid: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            env = safely(process.environ, {})
            if env.get("RANKZERO_RUN_ID") == run_id and "RANK" in env:
                by_pid.setdefault(int(env["RANK"]), process)
        return by_pid

    def yield_cores(self, run_id: str) -> None:
        """Let a training that only has to go on take a third of what others get where all cores are busy."""
        for rank in self.ranks(run_id).values():
            safely(partial(rank.nice, NICER), None)
            safely(partial(Path(f"/proc/{rank.pid}/autogroup").write_text, str(NICER)), None)  # its session

    def token(self) -> str:
        """The login token."""
        return (self.data / "token").read_text().strip()

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """A call of the API as the CLI makes it, patient with a server that is being restarted."""
        headers = {"Authorization": f"Bearer {self.token()}"} | more.pop("headers", {})
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                url = self.url + path
                return httpx2.request(method, url, headers=headers, timeout=60, **WITHOUT_TLS, **more)
            except httpx2.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def get(self, path: str) -> Any:
        """JSON of a GET."""
        response = self.request("GET", path)
        assert response.status_code == 200, (path, response.status_code, response.text)
        return response.json()

    def launch(self, target: str | Path, **spec: Any) -> str:
        """Launch a run; returns its id."""
        response = self.request("POST", "/api/runs", json={"target": str(target)} | spec)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        """One run."""
        return dict(self.get(f"/api/runs/{run_id}"))

    def wait_state(self, run_id: str, *states: str, timeout_s: float = WAIT_S) -> dict[str, Any]:
        """Wait until a run is in one of the states (default: until it has ended), and nothing is left to be sent."""
        wanted = states or ENDED
        return wait_for(
            lambda: (run := self.run(run_id))["state"] in wanted and not run["delivery"] and run,
            f"run {run_id} to be {' or '.join(wanted)}",
            timeout_s,
            explain=lambda: json.dumps(self.run(run_id), indent=1) + self.tail(),
            pause_s=PAUSE_S if states else SLOW_PAUSE_S,
        )

    def wait_step(self, run_id: str, step: int, timeout_s: float = WAIT_S) -> None:
        """Wait until a run has logged a step."""
        wait_for(
            lambda: (self.run(run_id)["step"] or 0) >= step,
            f"run {run_id} to reach step {step}",
            timeout_s,
            explain=lambda: json.dumps(self.run(run_id), indent=1) + self.tail(),
            pause_s=SLOW_PAUSE_S,
        )

    def delete_runs(self) -> None:
        """Stop and delete all runs, as a person does; no process of theirs is left."""
        ids = [run["id"] for run in self.get("/api/runs?limit=1000")]
        for run_id in ids:
            self.request("POST", f"/api/runs/{run_id}/stop")
        for run_id in ids:
            self.wait_state(run_id)
            deleted = self.request("DELETE", f"/api/runs/{run_id}")
            assert deleted.status_code in (200, 204), deleted.text
            wait_for(lambda run_id=run_id: not self.ranks(run_id), f"the ranks of run {run_id} to be gone")

    def tail(self) -> str:
        """The end of what `rankzero up` printed."""
        return self.log.read_text(errors="replace")[-6000:] if self.log.exists() else ""

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.tail()
        return (self.data / "token").exists() and self.request("GET", "/api/nodes").status_code == 200

    def _owns(self, process: psutil.Process) -> bool:
        if safely(process.status, psutil.STATUS_ZOMBIE) == psutil.STATUS_ZOMBIE:
            return False
        data = str(self.data)
        line = safely(process.cmdline, [])
        return any(data in task for task in line) or data in safely(process.environ, {}).get("RANKZERO_RUN_DIR", "")

    def _who_is_left(self) -> str:
        return "\n".join(f"{p.pid} {safely(p.cmdline, [])}" for p in self.processes()) + self.tail()


def wait_for(
    condition: Callable[[], Any],
    what: str,
    timeout_s: float = WAIT_S,
    explain: Callable[[], str] = lambda: "",
    pause_s: float = PAUSE_S,
) -> Any:
    """Wait until the condition returns something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:.0f} s in vain for {what}\n{explain()}")
        time.sleep(pause_s)
    return result


def is_ready_to_start(node: dict[str, Any]) -> bool:
    """Whether it will start the next run as it would start the others: forked or, where it cannot, plainly."""
    warm_start = (node["load"] or {}).get("warm_start")
    return bool(node["state"] == "alive" and warm_start and warm_start != PREPARING)


def safely(read: Callable[[], Any], default: Any) -> Any:
    """Ask about a process that may be gone by now."""
    try:
        return read()
    except (psutil.Error, OSError):
        return default


def contents_below(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below these folders, less those that are renamed or deleted before they are read."""
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for path in (Path(parent, name) for name in names):
                with suppress(FileNotFoundError):
                    if path.is_file():
                        yield path, path.read_bytes()


PORTS = range(15_000, 32_000)
"""Below those that the kernel gives to whoever asks for any."""
_claims: list[int] = []


def free_port() -> int:
    """A TCP port nobody listens on: this process has it until it ends, also while what listens there starts anew.

    A port that the kernel chose would be another's by then, once in some thousand times."""
    for port in random.sample(PORTS, len(PORTS)):
        if _claims_port(port) and _is_free(port):
            return port
    raise OSError("every port is taken")


def _claims_port(port: int) -> bool:
    """Whether no other process of tests has it; a name that goes with this process keeps the others away."""
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0rankzero-tests-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim.detach())
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
