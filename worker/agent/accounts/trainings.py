"""Trainings under accounts: each assignment goes to the agent of its launcher's account."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from domain.assignments import Assignment, DesiredCheck, Resend
from domain.checkpoint_use.tasks import CheckpointTaskReport, DesiredCheckpointTask, TaskKind
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import HeldAttempt, Reason, TaskReport
from domain.network.trust import trusted_certificates
from worker.agent.accounts.agents import AgentProcess, wait_for
from worker.agent.accounts.messages import AgentSettings, Answered, Order, handed_on
from worker.agent.accounts.places import usable
from worker.agent.accounts.record import AccountRecord
from worker.attempt.reports import Shutdown
from worker.launch.preparation import LocalNode, training_environment
from worker.launch.warm import READY
from worker.node.run_as import Account, NoAccount, RunAs
from worker.node.threads import start_thread
from worker.session.answers import Adoption, DesiredState
from worker.session.client import Client, TaskRef
from worker.session.clock import offset
from worker.session.failures import AttemptSuperseded, RequestRefused, ServerAway
from worker.session.server_session import Backoff
from worker.trainings.daemon import SHUTDOWN_GRACE_S
from worker.trainings.trainings import Trainings

log = logging.getLogger("worker")
OWN = ""
"""In place of an account: the worker's own."""


class AccountTrainings:
    """Has the interface of `Trainings`. What began under the worker's own account stays there.

    Raises CannotRun, CannotTrust."""

    def __init__(
        self,
        own: Trainings,
        run_as: RunAs,
        node: LocalNode,
        client: Client,
        *,
        server: str,
        warm_start: bool,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._own, self._run_as, self._node, self._client = own, run_as, node, client
        umask = os.umask(0o077)  # what the worker writes from now on is for nobody else
        self._settings = _settings(node, server, umask, warm_start)
        usable(run_as, node.data_dir, self._settings)
        self._record = AccountRecord(node.data_dir / RECORD_FILE)
        self._agents: dict[str, AgentProcess] = {}
        self._orders: dict[str, Order] = {}
        """The newest desired state of each account."""
        self._clock = clock
        self._idle_since: dict[str, float] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._lock = threading.RLock()
        self._is_closed = False

    # -- what is known -------------------------------------------------------------------------

    @property
    def unsettled(self) -> list[str]:
        """RUN/ATTEMPT of the attempts whose end the server does not have yet."""
        with self._lock:
            for name in self._agents:
                self._settle(name)
        return self._own.unsettled + self._record.open_attempts

    @property
    def training(self) -> list[str]:
        """RUN/ATTEMPT of those that may have processes."""
        labels = self._own.training
        for name, agent in self._running():
            recorded = set(self._record.attempts_of(name))
            begun = set() if agent.is_current else _labels(self._orders.get(name)) - set(agent.status.unsettled)
            labels += sorted(recorded & (begun | set(agent.status.training)))
        return labels

    @property
    def held(self) -> list[HeldAttempt]:
        """The attempts on this node that are not settled, for a server that may not know them."""
        held = self._own.held
        for name, agent in self._running():
            held += [one for one in agent.status.held if self._record.account_of(_label(one)) == name]
        return held

    @property
    def live_runs(self) -> set[str]:
        """The runs that may have processes here."""
        return self._own.live_runs | {label.partition("/")[0] for label in self.training}

    @property
    def has_ranks(self) -> bool:
        """Whether processes of an attempt may run here."""
        return self._own.has_ranks or bool(self.training)

    @property
    def status(self) -> str:
        """Whether the next launch finds torch imported."""
        if not self._run_as:
            return self._own.status
        statuses = [agent.status.warm_start for _, agent in self._running()]
        return next((status for status in statuses if status.startswith(READY)), NOT_READY_AT_FIRST)

    @property
    def adoption(self) -> Adoption | None:
        """Where snapshots of the worker's own attempts are placed; agents send theirs."""
        return self._own.adoption

    @adoption.setter
    def adoption(self, adoption: Adoption | None) -> None:
        self._own.adoption = adoption

    # -- what is done --------------------------------------------------------------------------

    def start(self) -> None:
        """Find what earlier processes left, and begin to work."""
        self._own.start()
        with self._lock:
            for name in self._record.open_accounts:
                self._start(name)
        wait_for([agent for _, agent in self._running()], FIND_LIMIT_S, self._clock)
        start_thread("accounts", self._tend, self._clock)

    def set_desired_state(self, desired: DesiredState, *, may_start: bool) -> None:
        """Take up the newest desired state; `may_start`: the server has the same protocol version."""
        shares, refused = dict[str, list[Assignment]](), list[tuple[Assignment, str]]()
        for assignment in desired.assignments:
            try:
                shares.setdefault(self._account_for(assignment), []).append(assignment)
            except NoAccount as error:
                refused.append((assignment, str(error)))
        checks = dict[str, list[DesiredCheck]]()
        for check in desired.checks:
            checks.setdefault(self.account_of_check(check), []).append(check)
        tasks = dict[str, list[DesiredCheckpointTask]]()
        refused_tasks = list[tuple[DesiredCheckpointTask, str]]()
        for task in desired.checkpoint_tasks:
            try:
                tasks.setdefault(self._account_of_task(task), []).append(task)
            except NoAccount as error:
                refused_tasks.append((task, str(error)))
        with self._lock:
            for name in {*self._orders, *shares, *checks, *tasks} - {OWN}:
                share = _share(desired, shares.get(name, []), self._resends_of(name, desired))
                own_lists = {"checks": checks.get(name, []), "checkpoint_tasks": tasks.get(name, [])}
                share = share.model_copy(update=own_lists | {"tests": [], "jobs": []})
                self._orders[name] = Order.of(share, may_start=may_start)
                self._pass_on(name)
        own = _share(desired, shares.get(OWN, []), self._resends_of(OWN, desired))
        own = own.model_copy(update={"checkpoint_tasks": tasks.get(OWN, [])})
        self._own.set_desired_state(own, may_start=may_start)
        if refused or refused_tasks:
            self.in_background(lambda: self._refuse(refused, refused_tasks))

    def shut_down(self, grace_s: float = SHUTDOWN_GRACE_S, cause: Shutdown = "worker") -> None:
        """Stop every run, with at most `grace_s` seconds each to save."""
        self._own.shut_down(grace_s, cause)
        for _, agent in self._running():
            agent.order(Order(number=0, shut_down_within_s=grace_s, cause=cause))

    def close(self, limit_s: float) -> None:
        """End the agents and the loops; trainings continue. Waits for the current step, but not longer than that."""
        with self._lock:
            self._is_closed = True
            agents = self._running()
        for _, agent in agents:
            agent.close()
        self._own.close(limit_s)
        for _, agent in agents:
            agent.wait(CLOSE_LIMIT_S)

    def wake(self) -> None:
        """End the current pause."""
        self._own.wake()

    def in_background(self, work: Callable[[], None]) -> None:
        """Do this in a thread of its own."""
        self._own.in_background(work)

    # -- who gets what -------------------------------------------------------------------------

    def _account_for(self, assignment: Assignment) -> str:
        """The account that an attempt is under from now on. Raises NoAccount with the sentence for its page."""
        label = _label(assignment)
        if (name := self._record.account_of(label)) is not None:
            return name
        folder = self._node.data_dir / f"runs/{label.replace('/', '/attempts/')}/node{assignment.node_rank}"
        if not self._run_as or assignment.is_known or folder.exists():
            return OWN
        if not assignment.token:
            raise NoAccount(NO_TOKEN)
        name = self._run_as.of(assignment.by)
        if name is None:
            raise NoAccount(self._no_account(assignment.by))
        self._record.give(label, name)
        return name

    def _no_account(self, person: str) -> str:
        return (
            f"Node {self._node.name} has no account for the trainings of {person or 'the person who launched this run'}"
            f": start its worker with --run-as {person or 'PERSON'}=ACCOUNT, or with --run-as ACCOUNT for everybody "
            "else."
        )

    def account_of_check(self, check: DesiredCheck) -> str:
        """The account under which a preflight runs the Python that a person named; the worker runs only its default."""
        if check.python in (None, self._node.python):
            return OWN
        return self._run_as.of(check.by) or OWN

    def _account_of_task(self, task: DesiredCheckpointTask) -> str:
        """The account of the run that a checkpoint is of, whose Python reads it. Raises NoAccount.

        A push is the worker's own: its secrets may be another person's than the run."""
        if task.kind is TaskKind.PUSH:
            return OWN
        if (name := self._record.account_of(_label(task))) is not None:
            return name
        folder = self._node.data_dir / f"runs/{task.run_id}/attempts/{task.attempt}/node{task.node_rank}"
        if not self._run_as or folder.exists():
            return OWN
        if (name := self._run_as.of(task.by)) is None:
            raise NoAccount(self._no_account(task.by))
        return name

    def _answer_check(self, name: str, answered: Answered) -> None:
        """Pass a result on, if it is of a preflight of this account."""
        order = self._orders.get(name)
        checks = order.desired.checks if order and order.desired else []
        if answered.check_id in {check.check_id for check in checks}:
            self.in_background(lambda: self._send_answer(answered))

    def _send_answer(self, answered: Answered) -> None:
        facts = answered.answer.facts
        for _ in range(ANSWER_TRIES):
            try:
                if facts is not None:
                    facts.clock_offset_s, facts.clock_error_s = offset(self._client.time, self._clock)
                return self._client.answer_check(answered.check_id, answered.answer)
            except RequestRefused as error:
                return log.info("preflight %d was not accepted: %s", answered.check_id, error)
            except ServerAway:
                self._clock.pause(1.0)

    def _resends_of(self, name: str, desired: DesiredState) -> list[Resend]:
        return [one for one in desired.resends if (self._record.account_of(_label(one)) or OWN) == name]

    def _refuse(
        self, refused: Sequence[tuple[Assignment, str]], tasks: Sequence[tuple[DesiredCheckpointTask, str]]
    ) -> None:
        for assignment, sentence in refused:
            end = TaskReport(state="failed", reason=Reason.LAUNCH_FAILED, message=sentence)
            with suppress(ServerAway, AttemptSuperseded, RequestRefused):  # the next poll repeats it
                self._client.report(TaskRef(assignment.fence, assignment.node_rank, assignment.label), end)
        for task, sentence in tasks:
            with suppress(ServerAway, AttemptSuperseded, RequestRefused):
                self._client.report_checkpoint_task(task, CheckpointTaskReport(state="failed", message=sentence))

    # -- the agents ----------------------------------------------------------------------------

    def _running(self) -> list[tuple[str, AgentProcess]]:
        with self._lock:
            return [(name, agent) for name, agent in self._agents.items() if agent.is_running]

    def _pass_on(self, name: str) -> None:
        agent, order = self._agents.get(name), self._orders[name]
        if agent is not None and agent.is_running:
            agent.order(order)
        elif _has_work(order):
            self._start(name)

    def _start(self, name: str) -> None:
        """Start an account's agent where that is due; it is tried again where it fails."""
        backoff = self._backoffs.setdefault(name, Backoff())
        if self._is_closed or not backoff.is_due(now := self._clock.now()):
            return
        backoff.failed(now)  # until it has answered
        try:
            agent = self._agents[name] = AgentProcess(
                Account.named(name), self._node.data_dir, self._settings, partial(self._answer_check, name)
            )
        except (NoAccount, OSError) as error:
            log.warning("%s", error)
            return
        if name in self._orders:
            agent.order(self._orders[name])

    def _tend(self) -> None:
        """Start agents that have ended with work to do, and let those go that have had none for a while."""
        while not self._is_closed:
            with self._lock:
                for name in {*self._agents, *self._orders}:
                    self._look_after(name)
            self._clock.pause(TEND_EVERY_S)

    def _look_after(self, name: str) -> None:
        agent, order = self._agents.get(name), self._orders.get(name)
        if agent is None or not agent.is_running:
            if self._agents.pop(name, None) is not None:
                log.warning("the agent of %s has ended", name)
            if _has_work(order) or name in self._record.open_accounts:
                self._start(name)
        elif self._settle(name):
            now = self._clock.now()
            if now - self._idle_since.setdefault(name, now) >= IDLE_S:
                self._agents.pop(name).close()
                self._orders.pop(name, None)
                del self._idle_since[name]
        else:
            self._idle_since.pop(name, None)

    def _settle(self, name: str) -> bool:
        """Note which attempts of an account have been settled; returns whether nothing is left to do."""
        agent, order = self._agents[name], self._orders.get(name)
        if not (agent.is_running and agent.is_current and agent.has_answered.is_set()):
            return False
        self._backoffs[name].worked()
        unsettled = {*agent.status.unsettled, *_labels(order)}
        self._record.settle(name, unsettled)
        return not (unsettled or _has_work(order))


NOT_READY_AT_FIRST = "torch is imported ahead for each account, once it has launched"
RECORD_FILE = "node/accounts.json"
IDLE_S = 600.0
"""So long an agent without attempts stays: torch may be imported ahead in it."""
TEND_EVERY_S = 0.5
FIND_LIMIT_S = 15.0
"""So long a worker that starts waits for what its agents find."""
CLOSE_LIMIT_S = 5.0
ANSWER_TRIES = 30
"""With a second between them."""
NO_TOKEN = (
    "The dashboard gives attempts no tokens of their own, which --run-as needs: upgrade it, or start the worker "
    "without that option."
)


def _label(one: Assignment | DesiredCheckpointTask | HeldAttempt | Resend) -> str:
    """RUN/ATTEMPT, by which the record knows attempts."""
    return f"{one.run_id}/{one.attempt}"


def _labels(order: Order | None) -> set[str]:
    """RUN/ATTEMPT of an order's assignments."""
    desired = order and order.desired
    return {_label(one) for one in desired.assignments} if desired else set()


def _has_work(order: Order | None) -> bool:
    desired = order and order.desired
    return bool(desired and (desired.assignments or desired.resends or desired.checks or desired.checkpoint_tasks))


def _share(desired: DesiredState, assignments: Sequence[Assignment], resends: Sequence[Resend]) -> DesiredState:
    return desired.model_copy(update={"assignments": [*assignments], "resends": [*resends]})


def _settings(node: LocalNode, server: str, umask: int, warm_start: bool) -> AgentSettings:
    """The settings that every agent gets at its start. Raises CannotTrust."""
    return AgentSettings(
        server=server,
        node=replace(node, connection_address=None),
        warm_start=warm_start,
        environment=handed_on(training_environment(os.environ)),
        umask=umask,
        certificates=trusted_certificates(),
    )
