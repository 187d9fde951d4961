"""Processes that watch what somebody else started, as the store hears of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from db.engine import Store
from db.runs import run_queries
from db.tasks import task_reports
from db.tasks.desired_state import assignment_of
from db.watched import places
from db.watched.places import TakenPlace
from domain.assignments import Assignment
from domain.messages import Device, NodeFacts, SeenRanks, State, TaskReport
from domain.protocol import PROTOCOL
from domain.views import RunView
from domain.watching.messages import WatchedCommand, WatchRequest
from tests.db.cluster import send_heartbeat

COMMAND = ["torchrun", "--nproc-per-node", "2", "train.py", "--epochs", "3"]
_IDS = count(1)


def gpus(amount: int) -> list[Device]:
    """The GPUs of a host."""
    return [Device(id=f"GPU-{index}", kind="cuda", name="NVIDIA H200") for index in range(amount)]


def watch_request(host: str = "gpu-3", devices: int = 2, **more) -> WatchRequest:
    """The request of a new process; `argv`, `cwd` and `scheduler` are the command's."""
    of_command = {name: more.pop(name) for name in ("argv", "cwd", "scheduler") if name in more}
    number = next(_IDS)
    command = {"argv": COMMAND, "cwd": "/home/mara/vision", "host": host, "account": "mara", "pid": 4000 + number}
    facts = NodeFacts(name=host, instance_id=f"i{number}", hostname=host, address="10.0.0.3", devices=gpus(devices))
    usual = {"protocol": PROTOCOL, "watch_id": f"watch{number:05}", "run_id": f"runid{number:05}", "started_at": 90.0}
    return WatchRequest(**usual | {"command": WatchedCommand(**command | of_command), "facts": facts} | more)


@dataclass
class Host:
    """A process that watches, with its place."""

    store: Store
    request: WatchRequest
    now: float = 100.0
    place: TakenPlace = field(init=False)

    def ask(self) -> TakenPlace:
        """Ask for a place, once more or for the first time."""
        self.place = places.take_place(self.store, self.request, self.now)
        return self.place

    @property
    def assignment(self) -> Assignment:
        return assignment_of(self.store, self.place.fence, self.place.node_id)

    def report(self, state: str, ranks: list[int] | None = None, world_size: int | None = None, **more) -> State:
        """Report as its companion does."""
        seen = None if ranks is None else SeenRanks(ranks=ranks, world_size=world_size)
        report = TaskReport(state=state, seen=seen, **more)
        where = self.place.node_id, self.place.fence, self.assignment.node_rank
        return task_reports.task_reported(self.store, *where, report, self.now)

    def beat(self, now: float) -> None:
        """Send a heartbeat."""
        self.now = now
        send_heartbeat(self.store, self.place.node_id, now)

    @property
    def run(self) -> RunView:
        """The run as people see it."""
        view = run_queries.run(self.store, self.place.run_id, self.now)
        assert view is not None
        return view


def watched(store: Store, now: float = 100.0, **more) -> Host:
    """A process that has asked for its place."""
    host = Host(store, watch_request(**more), now)
    host.ask()
    return host
