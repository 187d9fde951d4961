"""The agent of one account: does under it what a worker does for attempts, with their own tokens and no other.

Run as `python -P -m worker.agent.accounts.agent --data DIR`, DIR being that of the worker. It reads orders on its
standard input and ends with it; its trainings continue."""

from __future__ import annotations

import logging
import os
import pwd
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TextIO

from domain.assignments import Assignment, Resend
from domain.checkpoint_use.tasks import DesiredCheckpointTask
from domain.clock import SYSTEM_CLOCK, Clock
from domain.masking.log_lines import log_to_stderr
from domain.messages import CheckAnswer
from domain.network.trust import CA_FILE
from worker.agent.accounts.messages import (
    LONGEST_LINE_BYTES,
    AgentCheck,
    AgentLine,
    AgentSettings,
    Answered,
    Order,
    Status,
)
from worker.launch.preparation import LocalNode
from worker.node import hardware
from worker.node.standing_back import WORKER_NICENESS, StandingBack
from worker.preflight.checks import Checks
from worker.session.client import Client
from worker.session.failures import RequestRefused
from worker.session.options import CannotRun, lock_data
from worker.trainings.trainings import Trainings

log = logging.getLogger("worker")
ACCOUNTS = "accounts"
"""The folder of all accounts' folders, in the worker's data directory."""
LOCK_LIMIT_S = 15.0
"""So long the agent of a worker that was killed may take to end."""
LEAVE_LIMIT_S = 1.0


def main(arguments: list[str]) -> int:
    """Work until the worker ends; returns the exit code."""
    if len(arguments) != 2 or arguments[0] != "--data":
        print("usage: python -P -m worker.agent.accounts.agent --data DIR", file=sys.stderr)
        return 2
    orders, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    line = orders.readline(LONGEST_LINE_BYTES)
    if not line:
        return 0
    settings = AgentSettings.model_validate_json(line)
    os.environ.update(settings.environment)
    os.umask(settings.umask)
    data = Path(arguments[1]) / ACCOUNTS / pwd.getpwuid(os.getuid()).pw_name
    if settings.only_checks:
        print(AgentCheck(problem=problem_of(data, settings.node.python)).model_dump_json(), file=answers, flush=True)
        return 0
    folder = own_folder(data)
    _trust(settings.certificates, folder)
    log_to_stderr(logging.INFO, "%(message)s")  # the worker adds the time
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    Agent(settings, folder, orders, answers).run()
    return 0


def _trust(certificates: str, folder: Path) -> None:
    """Trust what the worker trusts, from a copy that this account may read."""
    if certificates:
        trusted = folder / "certificates.pem"
        trusted.write_text(certificates)
        os.environ[CA_FILE] = str(trusted)


class Agent:
    """Follows the worker's orders, and tells it what became of the attempts."""

    def __init__(
        self, settings: AgentSettings, data: Path, orders: BinaryIO, answers: TextIO, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._orders, self._answers = orders, answers
        self._lock = _locked(data, clock)
        self._clients = AttemptClients(settings.server)
        node = self._node(settings, data)
        self._trainings = Trainings(
            Client(settings.server),
            node,
            is_warm=settings.warm_start,
            imports_ahead=False,
            client_of=self._clients.of,
            on_step=self._tell,
            clock=clock,
        )
        self._told = ""
        self._telling = threading.Lock()
        self._standing = StandingBack(WORKER_NICENESS, interrupts=True)
        gpus = [device.id for device in hardware.devices(None) if device.kind == "cuda"]
        relay = Relay(settings.server, lambda answered: self._print(AgentLine(answered=answered)))
        self._checks = Checks(node, relay, self._trainings.in_background, gpus, clock)

    def _node(self, settings: AgentSettings, data: Path) -> LocalNode:
        """The worker's node, with the folder of this account."""
        is_chosen = settings.node.server_port is None
        connection_address = None if is_chosen else lambda: self._clients.own_address
        return replace(settings.node, data_dir=data, connection_address=connection_address)

    def run(self) -> None:
        """Follow orders until there are no more."""
        self._trainings.start()
        while line := self._orders.readline(LONGEST_LINE_BYTES):
            self._follow(Order.model_validate_json(line))
        self._trainings.close(LEAVE_LIMIT_S)

    def _follow(self, order: Order) -> None:
        if order.shut_down_within_s is not None:
            self._trainings.shut_down(order.shut_down_within_s, order.cause)
        if (desired := order.desired_with_secrets) is not None:
            self._clients.renew([*desired.assignments, *desired.checkpoint_tasks, *desired.resends])
            self._trainings.set_desired_state(desired, may_start=order.may_start)
            self._checks.set_desired_checks(desired.checks)
        self._trainings.order = order.number
        self._trainings.wake()

    def _tell(self, number: int) -> None:
        """Tell the worker of the attempts where something is different; `number`: the order in effect."""
        trainings = self._trainings
        self._standing.follow(ranks_run=trainings.has_ranks)
        status = Status(
            seen=number,
            unsettled=trainings.unsettled,
            training=trainings.training,
            held=trainings.held,
            warm_start=trainings.status,
        )
        if (text := status.model_dump_json()) != self._told:
            self._told = text
            self._print(AgentLine(status=status))

    def _print(self, line: AgentLine) -> None:
        with self._telling:
            print(line.model_dump_json(exclude_none=True), file=self._answers, flush=True)


class Relay(Client):
    """Has the worker answer preflights, because that needs the node's token."""

    def __init__(self, url: str, tell: Callable[[Answered], None]) -> None:
        super().__init__(url)
        self._tell = tell

    def answer_check(self, check_id: int, answer: CheckAnswer) -> None:
        """Hand on the node's results for one stage of a preflight check."""
        self._tell(Answered(check_id=check_id, answer=answer))

    def time(self) -> float:
        """The worker asks for the server's clock itself. Raises RequestRefused."""
        raise RequestRefused("the worker knows the time")


class AttemptClients:
    """A client of the server for each attempt, with the attempt's own token and nothing else."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._clients: dict[str, Client] = {}
        self._lock = threading.Lock()

    def of(self, owner: Assignment | DesiredCheckpointTask | Resend) -> Client:
        """The client of an attempt, with its newest token."""
        with self._lock:
            if owner.label not in self._clients:
                self._clients[owner.label] = Client(self._url)
            client = self._clients[owner.label]
            client.token = owner.token or client.token
            return client

    def renew(self, owners: Sequence[Assignment | DesiredCheckpointTask | Resend]) -> None:
        """Take up the tokens of attempts, which may be others now."""
        for owner in owners:
            self.of(owner)

    @property
    def own_address(self) -> str | None:
        """This node's address in a connection to the server."""
        return next((client.own_address for client in [*self._clients.values()] if client.own_address), None)


def own_folder(data: Path) -> Path:
    """Create the account's folder, which nobody else may enter. Raises OSError, also where it is another's."""
    data.mkdir(mode=0o700, exist_ok=True)
    status = data.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        raise PermissionError(f"{data} belongs to another account")
    data.chmod(0o700)
    return data


def problem_of(data: Path, python: str) -> str:
    """Why trainings cannot run under this account, as a sentence; else nothing."""
    name = data.name
    try:
        own_folder(data)
        (data / ".check").touch()
        (data / ".check").unlink()
    except OSError as error:
        return (
            f"{name} cannot use {data} ({error.strerror or error}): the worker's data must lie in folders that this "
            "account may enter. Choose another --data, such as /var/lib/rankzero."
        )
    if not os.access(python, os.X_OK):
        return (
            f"{name} cannot execute {python}, the Python for runs that name none: install it where this account may "
            "read it, such as /opt/rankzero, or choose another with --python."
        )
    return ""


def _locked(data: Path, clock: Clock) -> int:
    """Lock the account's folder, waiting for an earlier agent. Raises CannotRun."""
    deadline = clock.now() + LOCK_LIMIT_S
    while True:
        try:
            return lock_data(data)
        except CannotRun:
            if clock.now() >= deadline:
                raise
            clock.pause(0.1)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)
