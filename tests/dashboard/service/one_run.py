"""One run and everything that people, workers and programs ask about it: what may happen to it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import delete, select

from dashboard.api.statuses import STATUS
from dashboard.errors import Rejection
from dashboard.service import upkeep
from dashboard.service.service import Service
from db.alerts import actions, alerts
from db.checkpoints import checkpoint_reports
from db.findings import findings
from db.lookups import has_devices
from db.models import Attempt, Checkpoint, Run, RunTag, SharedLink, StudyTrial, Task
from db.nodes.node_reports import register_node
from db.runs import deletion, run_requests, shared_links
from db.runs.run_requests import NewTrial
from db.scheduling import queue_placement
from db.studies import studies, trials
from db.tasks import desired_state, task_reports
from domain.alerts.judgement import RunEvent
from domain.alerts.rules import Act, AlertAction, RateChange
from domain.messages import TERMINAL_STATES, CheckpointOffer, Finding, PointBatch, TaskReport
from domain.spec import RunEdit, RunSpec
from domain.sweeps import SweepPlan
from tests.dashboard.running import HEARD_FOR_S
from tests.db import task_streams
from tests.db.cluster import facts

SLOTS = 4
CONTENT = b"weights"
SHA256 = "ab" * 32
SPEC = RunSpec(target="image_classifier", batch_size=8, lr=0.1, gpus_per_node=1)
PLAN = SweepPlan.model_validate({"parameters": {"lr": {"values": [0.1, 0.2]}}, "metric": "val/loss"})


class Lab:
    """A dashboard with one node, one sweep and one alert, in this process."""

    def __init__(self, service: Service) -> None:
        self.service, self.store = service, service.store
        service.registry._clock = lambda: service.clock() + HEARD_FOR_S
        service.scheduler._turns._turn = threading.RLock()  # type: ignore[assignment]
        service.store.alone = lambda *names: nullcontext()  # type: ignore[method-assign]
        # One thread does both requests: it would wait for the turn of the scheduler that it has itself.
        self.node_id = register_node(self.store, facts(slots=SLOTS), None, service.clock() + HEARD_FOR_S).node_id
        self.sweep_id = studies.create(self.store, SPEC, PLAN, service.clock())
        act = AlertAction(Act.END)
        alert_id = alerts.create(self.store, "failed", "browser", None, 0.0, action=act)
        self.alert = alerts.alert(self.store, alert_id)
        self.trials = 0

    def run(self, state: str) -> OneRun:
        """A new run that is queued, running (or restarts once it fails), ended or deleted."""
        spec = SPEC.model_copy(update={"max_restarts": 1}) if state == "restarts" else SPEC
        part_of = NewTrial(self.sweep_id, self.trials, {"lr": 0.1})
        self.trials += 1
        one = OneRun(self, run_requests.submit(self.store, spec, self.service.clock(), part_of=part_of), part_of.number)
        if state != "queued":
            one.be_placed()
        if state in ("ended", "deleted"):
            one.report("succeeded")
        if state == "deleted":
            deletion.delete(self.store, one.run_id, self.service.clock())
        return one

    def clear(self) -> None:
        """End and erase all runs, whatever became of them."""
        with self.store.write() as session:
            session.execute(delete(Run))
            session.execute(delete(SharedLink))


@dataclass
class OneRun:
    """One run, with what its requests name."""

    lab: Lab
    run_id: str
    trial: int
    fence: int = 0
    whole: int = 0
    """The id of its complete checkpoint."""
    broken: int = 0
    """The id of one that never arrived whole."""

    def __post_init__(self) -> None:
        self.service, self.store = self.lab.service, self.lab.store
        with self.store.read() as session:
            self.fence = session.scalars(select(Attempt.fence).where(Attempt.run_id == self.run_id)).one()

    def be_placed(self) -> None:
        """Give it its devices, and have its node report a start, a step and two checkpoints."""
        queue_placement.place_queue(self.store, self.service.clock(), silent_after_s=HEARD_FOR_S * 2)
        self.report("running")
        self.points()
        self.whole, self.broken = self.offer("whole.pt"), self.offer("broken.pt")
        checkpoint_reports.completed(self.store, self.whole, self.service.clock())

    def report(self, state: str) -> None:
        """Report what became of the first attempt, as its node does."""
        report = TaskReport.model_validate({"state": state})
        now = self.service.clock()
        task_reports.task_reported(self.store, self.lab.node_id, self.fence, 0, report, now)
        self.service.task_changed(self.fence)

    def points(self) -> None:
        """Send the points of the first ten bytes of an event file."""
        series = {"rank0/step_time_s": [(1, 0.1, self.service.clock())]}
        batch = PointBatch(path="steps", generation=0, start=0, end=10, series=series, source="probe")
        task_streams.points_arrived(self.store, self.lab.node_id, self.fence, 0, batch)

    def offer(self, path: str) -> int:
        """Offer a checkpoint; returns its id."""
        offer = CheckpointOffer(path=path, step=1, size_bytes=len(CONTENT), sha256=SHA256, written_at=1.0)
        return checkpoint_reports.offered(self.store, self.lab.node_id, self.fence, 0, offer, 1.0).id

    def complete(self) -> None:
        """Report the broken checkpoint as whole after all."""
        checkpoint_reports.of_node(self.store, self.lab.node_id, self.broken)
        checkpoint_reports.completed(self.store, self.broken, self.service.clock())

    def find(self) -> None:
        """Report a finding."""
        finding = Finding(kind="hung", evidence="it hangs")
        findings.findings_reported(self.store, self.lab.node_id, self.fence, 0, [finding], self.service.clock())

    def alerted(self) -> None:
        """Meet the rule of an alert that ends the run."""
        event = RunEvent(f"{self.run_id} met", self.run_id, 1.0, "It is bad.", fence=self.fence)
        actions.carry_out(self.store, self.lab.alert, event, None, RateChange("the rate stays"), self.service.clock())

    def promote(self) -> None:
        """Go on as a trial of its sweep."""
        trials.promote(self.store, self.lab.sweep_id, self.trial, self.service.clock())
        self.service.schedule()

    def launch_from(self) -> None:
        """Launch another run from its checkpoint, in a pool that has no node."""
        spec = SPEC.model_copy(update={"resume": self.run_id, "wait_for_nodes": True, "nodes": 9})
        run_requests.submit(self.store, spec, self.service.clock())

    def come_due(self) -> None:
        """Erase it if it was deleted: its days are over at once."""
        self.service.deletions._sweep_from = 0.0
        self.service.deletions.sweep()

    def poll(self) -> None:
        """Ask what the node should be running, secrets and all."""
        self.service.assignments(self.lab.node_id)

    def come_to_rest(self) -> None:
        """Have its devices given out, and its node end what it is asked to end."""
        self.service.schedule()
        for task in desired_state.assignments(self.store, self.lab.node_id):
            if task.run_id == self.run_id and task.action == "stop":
                report = TaskReport.model_validate({"state": "stopped"})
                task_reports.task_reported(self.store, self.lab.node_id, task.fence, 0, report, 1.0)

    def answers(self) -> int:
        """The status of GET for the run."""
        return status(lambda: self.service.run(self.run_id))


Request = Callable[[OneRun], object]
PEOPLES: Mapping[str, Request] = {
    "stop": lambda one: one.service.stop(one.run_id),
    "resume": lambda one: one.service.resume(one.run_id),
    "delete": lambda one: one.service.delete(one.run_id),
    "delete now": lambda one: one.service.delete(one.run_id, at_once=True),
    "erase": lambda one: one.service.deletions.erase(one.run_id),
    "restore": lambda one: one.service.restore(one.run_id),
    "rename": lambda one: one.service.edit(one.run_id, RunEdit(name="renamed")),
    "tag": lambda one: one.service.edit(one.run_id, RunEdit(add_tags=["good"])),
    "move": lambda one: one.service.edit(one.run_id, RunEdit(project="vision", baseline=True)),
    "stacks": lambda one: one.service.ask_stacks(one.run_id),
    "profile": lambda one: one.service.request_profile(one.run_id, 1, []),
    "send again": lambda one: one.service.send_checkpoint_again(one.broken),
    "share": lambda one: shared_links.make(one.store, [one.run_id], 1, 0.0),
    "alert": lambda one: alerts.create(one.store, "failed", "browser", None, 0.0, run_id=one.run_id),
    "launch from it": OneRun.launch_from,
}
PROGRAMS: Mapping[str, Request] = {
    "alert acts": OneRun.alerted,
    "promote": OneRun.promote,
    "come due": OneRun.come_due,
    "tick": lambda one: upkeep.tick(one.service),
}
WORKERS: Mapping[str, Request] = {
    "running": lambda one: one.report("running"),
    "succeeded": lambda one: one.report("succeeded"),
    "failed": lambda one: one.report("failed"),
    "stopped": lambda one: one.report("stopped"),
    "points": OneRun.points,
    "offer": lambda one: one.offer("more.pt"),
    "complete": OneRun.complete,
    "finding": OneRun.find,
    "poll": OneRun.poll,
}
REQUESTS = {**PEOPLES, **PROGRAMS, **WORKERS}


def status(act: Callable[[], object]) -> int:
    """The HTTP status with which the API answers."""
    try:
        act()
    except Rejection as refusal:
        return refusal.status_code
    except tuple(STATUS) as error:
        return next(code for kind, code in STATUS.items() if isinstance(error, kind))
    return 200


class AttemptFacts(NamedTuple):
    """What is stored of an attempt, without times."""

    number: int
    state: str
    is_stop_requested: bool
    is_stacks_requested: bool


@dataclass(frozen=True)
class Facts:
    """What is stored of a run, without times."""

    run: tuple[str, str, bool] | None
    """Its name and project, and whether it is deleted; None once it is gone."""
    tags: list[str]
    attempts: list[AttemptFacts]
    devices: int
    """How many devices its tasks have."""
    checkpoints: list[tuple[str, bool, bool]]
    """The path of each, whether it is complete, and whether it is to be sent again."""
    trial: tuple[str | None, int]
    """Its result as a trial, and the rungs that it has passed."""
    links: int

    @classmethod
    def of(cls, one: OneRun) -> Facts:
        """What is stored of that run now."""
        with one.store.read() as session:
            run = session.get(Run, one.run_id)
            attempts = session.scalars(select(Attempt).filter_by(run_id=one.run_id).order_by(Attempt.number)).all()
            fences = [attempt.fence for attempt in attempts]
            held = select(Task.devices).join(Attempt).where(Task.fence.in_(fences), has_devices())
            checkpoints = session.scalars(select(Checkpoint).where(Checkpoint.fence.in_(fences)))
            trial = session.get_one(StudyTrial, (one.lab.sweep_id, one.trial))
            return cls(
                (run.name, run.project, run.deleted_at is not None) if run else None,
                sorted(session.scalars(select(RunTag.tag).filter_by(run_id=one.run_id))),
                [_facts_of(attempt) for attempt in attempts],
                sum(map(len, session.scalars(held))),
                sorted((row.path, row.complete, row.resend_requested_at is not None) for row in checkpoints),
                (trial.state, trial.rung),
                len(session.scalars(select(SharedLink)).all()),
            )

    @property
    def is_deleted(self) -> bool:
        """Whether it is deleted, or gone."""
        return self.run is None or self.run[2]

    @property
    def live(self) -> list[int]:
        """The numbers of its attempts that have not ended."""
        return [attempt.number for attempt in self.attempts if attempt.state not in TERMINAL_STATES]

    @property
    def ended(self) -> dict[int, AttemptFacts]:
        """Its attempts that have ended, by number."""
        return {attempt.number: attempt for attempt in self.attempts if attempt.state in TERMINAL_STATES}


def _facts_of(row: Attempt) -> AttemptFacts:
    return AttemptFacts(row.number, row.state, row.stop_requested_at is not None, row.stacks_requested_at is not None)
