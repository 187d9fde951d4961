"""A watched command on virtual time: its front on a fake machine, its companion, and a server that knows guests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.assignments import Assignment
from domain.clock import Clock
from domain.messages import NodeLoad
from domain.protocol import PROTOCOL
from domain.spec import RunSpec
from domain.watching.messages import WatchAnswer, WatchRequest
from tests.virtual_time import HOUR_S, VirtualTime
from tests.worker.fake_machine import FakeMachine, FakeProcess, Program
from tests.worker.fake_server import FakeServer
from worker.session.answers import DesiredState, Registration
from worker.session.failures import Ended, RequestRefused, Unauthorized
from worker.session.options import CannotRun
from worker.watched import folder as folders
from worker.watched.companion import Companion
from worker.watched.folder import Watched
from worker.watched.progress import Progress, read_progress

WATCH_ID, OWN_RUN, RUN = "watchwatch", "ownownown1", "givengiven"
PERSON, GUEST = "rzt_person", "token-of-guest"


class Killed(BaseException):
    """Ends the threads of a companion that was killed."""


class Life(Clock):
    """The time of one companion, whose threads end once it is killed."""

    def __init__(self, time: VirtualTime) -> None:
        self._time, self.is_over = time, False

    def now(self) -> float:
        return self._time.now()

    def wall(self) -> float:
        return self._time.wall()

    def wait(self, until: float, woken: threading.Event | None = None) -> bool:
        is_set = self._time.wait(until, woken)
        if self.is_over:
            raise Killed
        return is_set

    def start(self, name: str, work: Callable[[], object]) -> threading.Event:
        def live() -> None:
            with suppress(Killed):
                work()

        return self._time.start(name, live)


class GuestServer(FakeServer):
    """The server as guests see it: it gives one place, and can refuse, let wait and remove."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self.clock, self.time = time, time.wall  # type: ignore[method-assign]
        self.own_address: str | None = None
        self.store, self.node_id, self.token = "s1", "n1", PERSON
        self.answer: WatchAnswer | Exception | None = None
        """Instead of a place."""
        self.failure: Exception | None = None
        """Raised at whatever the guest asks with its own token."""
        self.asked_for: list[WatchRequest] = []
        self.tokens: list[str] = []
        """With which it was registered."""
        self.loads: list[NodeLoad] = []
        self.changes: dict[str, Any] = {}
        """Of the assignment."""
        self.version, self._changed = 1, threading.Event()
        self.is_unlisted = False

    def assignment(self) -> Assignment:
        spec = RunSpec(target="/train.py", launcher="python", workdir=self.asked_for[-1].command.cwd, stop_grace_s=30)
        return Assignment(
            run_id=RUN, attempt=3, fence=7, node_rank=2, action="run", spec=spec, devices=["cpu:0"],
            device_kind="cpu", uid="u1", store=self.store, is_known=True,
        ).model_copy(update=self.changes)  # fmt: skip

    def change(self, **changes: Any) -> None:
        """Change what is wanted of the command."""
        self.changes |= changes
        self.version += 1
        self._changed.set()

    def watch(self, request: WatchRequest) -> WatchAnswer:
        super()._arrive()
        self.asked_for.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or WatchAnswer(
            place="joined", run_id=RUN, url=f"/run?id={RUN}", node_id="n1", node_token=GUEST,
            assignment=self.assignment(), store=self.store,
        )  # fmt: skip

    def register(self, facts, node_id, token, was_registered) -> Registration:
        self._arrive()
        self.tokens.append(token)
        assert facts.pool == f"watched:{self.assignment().fence}"
        return Registration(node_id="n1", token=GUEST, protocol=PROTOCOL, store=self.store)

    def desired_state(self, version: str | None, wait_s: float) -> DesiredState:
        self._arrive()
        if version == str(self.version):
            self.clock.pause(wait_s, self._changed)
            self._changed.clear()
            self._arrive()
        has_ended = self.end(self.assignment().fence) is not None
        own = [] if self.is_unlisted or has_ended else [self.assignment()]
        return DesiredState(version=str(self.version), assignments=own, store=self.store)

    def load(self, load) -> list:
        self._arrive()
        self.loads.append(load)
        return []

    def remember(self, fence: int, newest: str) -> None:
        """Which attempt was the newest."""

    def close(self) -> None:
        """Nothing is open."""

    def _arrive(self) -> None:
        super()._arrive()
        if self.failure is not None:
            raise self.failure


class Watching:
    """One command and what watches it."""

    def __init__(self, folder: Path) -> None:
        self.time = VirtualTime()
        self.machine, self.server = FakeMachine(self.time), GuestServer(self.time)
        self.data, self.cwd = folder / "data", folder / "cwd"
        self.cwd.mkdir()
        self.is_known = True
        """Whether this machine knows a server."""
        self.life: Life | None = None
        self.companion: Companion | None = None
        self.outcome: list[bool] = []
        self.front: FakeProcess | None = None

    @property
    def folder(self) -> Path:
        return self.data / "watched" / WATCH_ID

    @property
    def attempt(self) -> Path:
        return self.folder / folders.ATTEMPT

    def watch(self, program: Program, **fields: Any) -> None:
        """Start a command with its front, and its companion."""
        script = self.cwd / "train.py"
        script.touch()
        self.machine.programs[str(script)] = program
        env = {"RANKZERO_RUN_ID": OWN_RUN, "RANKZERO_ATTEMPT": "1", "RANKZERO_NODE_RANK": "0"}
        env["RANKZERO_PROBE_DIR"] = str(self.attempt / "probe")
        watched = {
            "watch_id": WATCH_ID, "run_id": OWN_RUN, "argv": ["python", str(script)], "cwd": str(self.cwd),
            "host": "gpu-3", "account": "mara", "pid": self.machine.newest + 1, "started_at": self.time.wall(),
        }  # fmt: skip
        folders.make(self.data, Watched(**watched | fields))
        launch = {
            "argv": ["python", str(script)], "env": env, "cwd": str(self.cwd), "grace_s": 30.0, "launcher": "python",
            "launcher_restarts": 0, "first_rank": 0, "processes": 1,
        }  # fmt: skip
        (self.attempt / "launch.json").write_text(json.dumps(launch))
        self.front = self.machine.spawn(self.attempt, OWN_RUN, 1, {})
        self.start_companion()

    def start_companion(self, patience_s: float = 60.0) -> None:
        """Start the companion, or another one after the end of the one before."""
        self.life = life = Life(self.time)

        def run() -> None:
            self.companion = Companion(self.folder, self.connect, patience_s=patience_s, clock=life, table=self.machine)
            self.outcome.append(self.companion.run())

        life.start("companion", run)

    def kill_companion(self) -> None:
        """Kill it with -9: nothing of it goes on."""
        self.life.is_over = True

    def connect(self, token: str | None) -> Any:
        if not self.is_known:
            raise CannotRun("No dashboard is known here.")
        self.server.token = token or PERSON
        return self.server

    @property
    def progress(self) -> Progress:
        return read_progress(self.folder)

    @property
    def ranks(self) -> list[FakeProcess]:
        """The living processes of the command."""
        return [process for process in self.machine.living.values() if process is not self.front]

    def until(self, condition: Callable[[], Any], limit_s: float = HOUR_S) -> Any:
        return self.time.run_until(condition, limit_s, lambda: f"; {self.progress}; {self.server.states()}")

    def until_over(self) -> bool:
        """Wait for the companion's end; returns whether it has delivered everything."""
        self.until(lambda: self.outcome)
        return self.outcome[-1]

    def until_registered(self) -> None:
        self.until(lambda: "running" in self.server.states())


REFUSED = RequestRefused("Your token may not launch here.")
UNKNOWN = Unauthorized("who are you?")
REMOVED = Ended("Node gpu-3 was removed.")
