"""One node with two slots, and the verbs a worker has: what most tests of the store begin with."""

from __future__ import annotations

from dataclasses import dataclass

from db.engine import Store
from db.nodes import node_reports
from db.runs import run_requests
from db.scheduling import queue_placement
from db.scheduling.node_state import registered_nodes
from db.tasks import task_reports
from db.tasks.desired_state import assignments
from domain.assignments import Assignment
from domain.messages import Device, NodeFacts, NodeLoad, PointBatch, State, TaskReport
from domain.scheduling.fit import devices_per_node
from domain.spec import RunSpec
from tests.db import task_streams


def facts(name: str = "gpu-1", slots: int = 2, **more) -> NodeFacts:
    devices = [Device(id=f"cpu:{i}", kind="cpu", name="CPU slot") for i in range(slots)]
    return NodeFacts(
        **{"name": name, "instance_id": "i1", "hostname": name, "address": "127.0.0.1", "devices": devices} | more
    )


def send_heartbeat(store: Store, node_id: str, now: float, load: NodeLoad | None = None) -> None:
    node_reports.heartbeats_received(store, {node_id: node_reports.Heartbeat(now, load)})


@dataclass
class Cluster:
    """One node with two slots and the verbs a worker has."""

    store: Store
    node_id: str
    now: float = 100.0

    def launch(self, **spec) -> str:
        given = {"target": "image_classifier", "batch_size": 8, "lr": 0.1} | spec
        if "gpus_per_node" not in given:
            with self.store.read() as session:
                nodes = registered_nodes(session, self.now)
            given["gpus_per_node"] = devices_per_node(RunSpec(**given), nodes)
        run_id = run_requests.submit(self.store, RunSpec(**given), self.now)
        self.place()
        return run_id

    def place(self) -> list[str]:
        send_heartbeat(self.store, self.node_id, self.now)
        return queue_placement.place_queue(self.store, self.now, silent_after_s=30)

    def assignments(self) -> list[Assignment]:
        return assignments(self.store, self.node_id)

    def report(self, fence: int, state: str, node_rank: int = 0, **more) -> State:
        report = TaskReport(state=state, **more)
        return task_reports.task_reported(self.store, self.node_id, fence, node_rank, report, self.now)

    def points(self, fence: int, start: int, end: int, series, path: str = "events", **more) -> task_reports.Arrival:
        batch = PointBatch(path=path, generation=0, start=start, end=end, series=series, **more)
        return task_streams.points_arrived(self.store, self.node_id, fence, 0, batch)
