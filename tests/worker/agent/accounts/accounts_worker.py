"""`rankzero worker --run-as` as a program, beside a server on a real socket."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from domain.assignments import Assignment
from domain.spec import RunSpec
from tests.other_accounts import OtherAccount
from tests.worker.http_server import HttpServer

WAITING = """
import os, pathlib, time
pathlib.Path("uid").write_text(str(os.getuid()))
pathlib.Path("ready").touch()
while pathlib.Path("ready").exists(): time.sleep(0.02)
"""


class AccountsWorker:
    """A worker in a folder that all may enter, and the attempts it is given."""

    def __init__(self, place: Path, python: Path, server: HttpServer) -> None:
        self.place, self.python, self.server = place, python, server
        self.data, self.log = place / "data", place / "worker.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *run_as: str, become: Sequence[str] = (), python: str | None = None) -> subprocess.Popen[bytes]:
        """Start it with these values of --run-as, perhaps as somebody else."""
        options = [part for entry in run_as for part in ("--run-as", entry)]
        command = [python or str(self.python), "-P", "-m", "cli.main", "worker", "--server", self.server.url]
        command += ["--data", str(self.data), "--slots", "2", "--no-warm-start", *options]
        env = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
        env |= {"RANKZERO_TOKEN": "join-token", "SOME_SECRET": "of the worker", "HOME": str(self.place)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*become, *command], env=env, stderr=log, cwd="/", start_new_session=True)
        return self.process

    def assign(self, fence: int, by: str, text: str = WAITING, **more: Any) -> Assignment:
        """Give it an attempt of a person."""
        script = self.place / f"train{fence}.py"
        script.write_text(text)
        spec = RunSpec(target=str(script), launcher="python", stop_grace_s=600)
        assignment = Assignment(
            run_id=uuid.uuid4().hex[:10], attempt=1, fence=fence, node_rank=0, action="run", spec=spec, devices=[],
            device_kind="cpu", uid=f"u{fence}", by=by, token=f"token-of-{fence}", **more,
        )  # fmt: skip
        self.server.assignments = [*self.server.assignments, assignment]
        return assignment

    def folder(self, assignment: Assignment, account: str) -> Path:
        """The attempt's directory."""
        return self.data / f"accounts/{account}/runs/{assignment.run_id}/attempts/1/node0"

    def states(self, fence: int) -> list[str]:
        """The states that were reported of an attempt."""
        return self.server.store.states(fence)

    def processes(self) -> list[psutil.Process]:
        """Every process of it and its trainings."""
        return [process for process in psutil.process_iter(["cmdline", "ppid"]) if self._is_its_own(process)]

    def _is_its_own(self, process: psutil.Process) -> bool:
        words = process.info["cmdline"] or []
        return any(str(self.place) in word for word in words) and process.pid != os.getpid()

    def agents(self) -> list[psutil.Process]:
        """The processes that work for accounts, without what one of them is just about to start."""
        alike = [one for one in self.processes() if "worker.agent.accounts.agent" in one.info["cmdline"]]
        return [one for one in alike if one.info["ppid"] not in {other.pid for other in alike}]

    def let_end(self, assignment: Assignment, account: OtherAccount) -> None:
        """Let a waiting training end, once it has begun."""
        ready = self.folder(assignment, account.name) / "work/ready"
        self.until(ready.exists)
        ready.unlink()

    def clean_up(self) -> None:
        """End whatever is left of it."""
        left = self.processes()
        for process in left:
            with suppress(psutil.NoSuchProcess):  # it ended with one that was killed before it
                process.kill()
        psutil.wait_procs(left, timeout=300)
        if self.process is not None:
            self.process.wait(300)

    def until(self, condition: Callable[[], Any], limit_s: float = 300.0) -> Any:
        """Wait until the condition gives something true, and return that."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if result := condition():
                return result
            time.sleep(0.05)
        raise AssertionError(f"not within {limit_s} s\n{self.log.read_text()[-4000:]}")
