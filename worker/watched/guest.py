"""A guest node: the worker of one command that somebody else started, from its place in a run to its delivery."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from domain.clock import Clock
from domain.messages import NodeFacts, NodeLoad
from worker.attempt.attempt import LocalAttempt
from worker.attempt.delivery import NOTHING, Remaining
from worker.attempt.supervision import Guest
from worker.checkpoints.upload import sees_server_disk
from worker.launch.preparation import LocalNode
from worker.node import hardware
from worker.node.process_table import ProcessTable
from worker.node.regular_files import bytes_of
from worker.node.state_files import read_object, write_whole
from worker.node.threads import start_thread
from worker.session.answers import DesiredState, Registration
from worker.session.client import Client
from worker.session.failures import OF_THE_SERVER
from worker.session.server_session import ServerSession, SessionOwner
from worker.trainings.trainings import Trainings
from worker.watched.folder import Watched
from worker.watched.place import NODE_FILE, RegisteredPlace, in_own_folder, own_devices

log = logging.getLogger("worker")
FACTS_FILE = "node/facts.json"
COUNTED_EVERY_S = 1.0
"""How much is still to be sent is counted so often; each time its folders are read."""


class GuestMachine:
    """The machine of a watched command, as a guest node of the dashboard."""

    def __init__(self, folder: Path, watched: Watched) -> None:
        self.folder, self.watched = folder, watched
        self._facts = _facts_of(folder, watched)
        self.devices = self._facts.devices
        self.node = LocalNode(name=watched.host, data_dir=folder, python=watched.python or "python3")
        self.rules = Guest(watched.host, look_only=watched.look_only)

    def facts(self, pool: str = "") -> NodeFacts:
        """The facts to register with."""
        return self._facts.model_copy(update={"pool": pool})


def _facts_of(folder: Path, watched: Watched) -> NodeFacts:
    """The facts of the command's machine: as its first companion wrote them, for another machine may send the rest."""
    path = folder / FACTS_FILE
    instance_id = uuid.uuid4().hex
    with contextlib.suppress(OSError, ValueError):
        return NodeFacts.model_validate_json(bytes_of(path)).model_copy(update={"instance_id": instance_id})
    facts = NodeFacts(
        name=watched.host[:100], instance_id=instance_id, hostname=os.uname().nodename, address="",
        devices=own_devices(hardware.devices(None), watched, os.environ), info=hardware.node_info(),
    )  # fmt: skip
    with contextlib.suppress(OSError):
        write_whole(path, facts.model_dump_json())
    return facts


class WatchedTrainings:
    """The worker's own code at work for one watched command."""

    def __init__(self, machine: GuestMachine, client: Client, clock: Clock, table: ProcessTable) -> None:
        self.trainings = Trainings(
            client, machine.node, is_warm=False, imports_ahead=False, on_step=self._look, clock=clock, table=table,
            guest=machine.rules,
        )  # fmt: skip
        self._clock, self._counted_at = clock, float("-inf")
        self._attempt: LocalAttempt | None = None
        self.remaining: Remaining = NOTHING
        """How much of the ended command's data is sent."""

    @property
    def is_over(self) -> bool:
        """Whether no process of the command is left."""
        return not self.trainings.training

    @property
    def is_settled(self) -> bool:
        """Whether the server has its end, and nothing more is sent."""
        return not self.trainings.unsettled

    def end(self) -> None:
        """End the work, and wait until nothing of it touches the command's folder any more."""
        self.trainings.end()
        self._count()

    def _look(self, _: int) -> None:
        """Count now and then what is still to be sent; called in the thread that sends."""
        self._attempt = next(iter(self.trainings.daemon.attempts), self._attempt)
        if self._clock.now() - self._counted_at >= COUNTED_EVERY_S:
            self._count()

    def _count(self) -> None:
        if self._attempt is not None and self._attempt.is_over:
            with contextlib.suppress(OSError, *OF_THE_SERVER):
                self.remaining = self._attempt.remaining()
            self._counted_at = self._clock.now()


class GuestNode(WatchedTrainings, SessionOwner):
    """The guest with its place in a run."""

    def __init__(
        self,
        machine: GuestMachine,
        place: RegisteredPlace,
        client: Client,
        clock: Clock,
        table: ProcessTable,
    ) -> None:
        super().__init__(machine, client, clock, table)
        self._machine, self._place, self._client = machine, place, client
        identity = GuestIdentity(machine.folder / NODE_FILE, machine.watched.host)
        self._session = ServerSession(client, identity, self, "node", clock)
        self._leaves = False
        self.answered_at = float("-inf")
        """When the server answered this guest last, in seconds of the clock's `now`."""

    def start(self) -> None:
        """Begin to work."""
        self.trainings.start()
        for loop in (self._session.poll, self._session.report_load):
            start_thread(loop.__name__, loop, self._clock)

    def end(self) -> None:
        """End the work and the session, and wait for the work."""
        self._session.close()
        super().end()

    def leave(self, limit_s: float) -> None:
        """Tell the server that this guest is gone, if it answers at once."""
        self._leaves = True

        def say() -> None:
            with contextlib.suppress(*OF_THE_SERVER):
                self._client.load(self.load())

        self._clock.pause(limit_s, self._clock.start("goodbye", say))

    # -- the session with the server -----------------------------------------------------------

    def facts(self) -> NodeFacts:
        """The facts to register with."""
        facts = self._machine.facts(pool=f"watched:{self._place.assignment.fence}")
        return facts.model_copy(update={"held": self.trainings.held})

    def load(self) -> NodeLoad:
        """A sample of the machine's load."""
        sample = hardware.sample_load(self._machine.folder)
        sample.held, sample.leaving, sample.address = self.trainings.held, self._leaves, self._client.own_address
        return sample

    def on_registered(self, registration: Registration, *, may_start: bool) -> None:
        """Take up a registration."""
        self.trainings.adoption = registration.adopt if sees_server_disk(registration.adopt) else None

    def on_desired_state(self, desired: DesiredState) -> None:
        """Take up what is wanted of the one command: a guest does nothing else for anyone."""
        self._note_answer()
        ours = (one for one in desired.assignments if one.is_of(self._place.assignment))
        own = [in_own_folder(one, self._machine.watched) for one in ours]
        nothing_else = {"assignments": own, "end_unknown": [], "resends": [], "checkpoint_tasks": []}
        self.trainings.set_desired_state(desired.model_copy(update=nothing_else), may_start=False)

    def on_load_reported(self) -> None:
        """Note that the server has answered."""
        self._note_answer()

    def _note_answer(self) -> None:
        self.answered_at = self._clock.now()


class GuestIdentity:
    """The identity that the server gave the guest with its place; it can join by nothing else."""

    join_token = ""

    def __init__(self, file: Path, name: str) -> None:
        self.file, self.values, self.name = file, read_object(file), name


Connect = Callable[[str | None], Client]
"""(token, None for that of the person) -> a client of the dashboard. Raises CannotRun with a sentence."""
