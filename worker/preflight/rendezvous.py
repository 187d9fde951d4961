"""Agrees with a run's other nodes, through the server, on the rendezvous endpoint before any rank starts.

Rank 0's node chooses the endpoint and holds its port open until all nodes may start. Each node reports its checks
(`preflight`) before its code is fetched and again afterwards."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from domain.assignments import Assignment
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import NodeCheck, Reason, TaskReport
from worker.launch.preparation import CannotStart, LocalNode, free_port, has_endpoint, interpreter_of
from worker.node.attempt_files import INTERPRETER_FILE, LAUNCH_FILE, STATE_FILE, STOP_FILE
from worker.node.regular_files import bytes_of
from worker.node.state_files import REPORTED_FILE, read_object, write_whole
from worker.preflight.node_check import ProbeListener, check_node_for_run, code_of, greeting_of
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, RequestRefused, ServerAway


class Rendezvous:
    """One node's side of the rendezvous; does nothing for runs on one node."""

    def __init__(
        self, folder: Path, node: LocalNode, client: Client, task: TaskRef, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._folder, self._node, self._client, self._task, self._clock = folder, node, client, task, clock
        self._node_check: NodeCheck | None = None
        self._reported_check: NodeCheck | None = None
        self._report_lock = threading.Lock()
        self._assigned_port: int | None = None
        self._listener: ProbeListener | None = None

    def take_up(self, assignment: Assignment) -> Assignment:
        """Take up the server's newest assignment, without its endpoint if that port is in use."""
        self._assigned_port = assignment.master_port
        if assignment.node_rank == 0 and assignment.master_port in self._ports_in_use():
            return assignment.model_copy(update={"master_addr": None, "master_port": None})
        return assignment

    def report(self, assignment: Assignment) -> Assignment:
        """Report the endpoint and checks the other nodes wait for; returns the assignment with the chosen endpoint."""
        if assignment.spec.nodes == 1:
            return assignment
        if assignment.node_rank == 0 and (assignment.master_port is None or self._must_listen(assignment)):
            assignment = self._choose_endpoint(assignment)
        self._report_check()
        return assignment

    def needs_check(self, assignment: Assignment) -> bool:
        """Whether this node has not been checked yet, or was checked with an earlier port of rank 0."""
        if assignment.spec.nodes == 1 or assignment.may_start or not has_endpoint(assignment):
            return False
        node_check = self._node_check
        return node_check is None or assignment.master_port not in (
            node_check.port,
            *(peer.port for peer in node_check.reached),
        )

    def check_node(self, assignment: Assignment) -> None:
        """Check this node and report the result; runs in the thread that prepares. Raises CannotStart."""
        if assignment.spec.nodes == 1 or assignment.may_start:
            return
        try:
            interpreter_of(assignment.spec, self._folder, self._node)
        except CannotStart as error:
            self._node_check = self._unchecked().model_copy(update={"interpreter": {"problem": str(error)}})
            raise
        if has_endpoint(assignment):
            self._node_check = check_node_for_run(assignment, self._folder, self._node, self._client, self._clock)
            self._try_to_report_check()

    def report_prepared(self, assignment: Assignment) -> None:
        """Report that everything the attempt needs is on this node."""
        if self._node_check is not None:
            code = code_of(assignment.spec)
            self._node_check = self._node_check.model_copy(update={"is_prepared": True, "code": code})
            self._try_to_report_check()

    def failure_report(self, reason: Reason, message: str, next_step: str | None = None) -> TaskReport:
        """The report of a failed start, with the checks done so far if the run has several nodes."""
        node_check = self._node_check
        if node_check is not None and not node_check.interpreter.get("problem"):
            node_check = node_check.model_copy(update={"problem": message})
        return TaskReport(state="failed", reason=reason, message=message, next_step=next_step, preflight=node_check)

    def close(self) -> None:
        """Free the port, for the launcher or because nothing will be started."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def next_step(
        self, assignment: Assignment, is_supervised: Callable[[], bool]
    ) -> Literal["go on", "wait", "start over"]:
        """Whether the launcher goes on, waits or starts over because another program has the rendezvous port.

        Rank 0's node starts over with another port, the other nodes as soon as they learn of it."""
        state = read_object(self._folder / STATE_FILE)
        if assignment.spec.nodes == 1 or not state or state["running_at"] is not None:
            return "go on"
        is_moving = self._has_lost_port(state) if assignment.node_rank == 0 else self._has_moved()
        if not is_moving:
            return "wait" if assignment.node_rank > 0 and _failed_just_now(state, self._clock) else "go on"
        if is_supervised():
            if state["state"] != "ended":
                write_whole(self._folder / STOP_FILE, "0")
            return "wait"
        self._delete_start()
        return "start over"

    def _report_check(self) -> None:
        """Report each new result once, never an older one after a newer."""
        with self._report_lock:
            node_check = self._node_check
            if node_check is None or node_check is self._reported_check:
                return
            interpreter = node_check.interpreter if "problem" not in node_check.interpreter else None
            report = TaskReport(state="starting", interpreter=interpreter, preflight=node_check)
            self._client.report(self._task, report)
            self._reported_check = node_check

    def _try_to_report_check(self) -> None:
        """Report now, because other nodes wait; a failed report is repeated in the next step."""
        with suppress(ServerAway, AttemptSuperseded, RequestRefused):
            self._report_check()

    def _must_listen(self, assignment: Assignment) -> bool:
        return self._listener is None and not assignment.may_start

    def _choose_endpoint(self, assignment: Assignment) -> Assignment:
        """Choose and report the endpoint: the port chosen earlier, or a free one if that is in use now."""
        port_file, address = self._folder / PORT_FILE, self._node.as_seen_by_others().address
        port = self._chosen_port()
        try:
            if assignment.may_start:
                port = port or free_port(address)
            else:
                self._listener = self._listener or _open_listener(address, port, greeting_of(assignment))
                port = self._listener.port
        except OSError as error:
            text = f"cannot listen at {address}: {(error.strerror or str(error)).lower()}"
            self._node_check = self._unchecked().model_copy(update={"port_problem": text})
            return assignment
        write_whole(port_file, str(port))
        endpoint = {"master_addr": address, "master_port": port}
        if (assignment.master_addr, assignment.master_port) != (address, port):
            self._client.report(self._task, TaskReport.model_validate({"state": "starting", **endpoint}))
        return assignment.model_copy(update=endpoint)

    def _chosen_port(self) -> int:
        try:
            return int(bytes_of(self._folder / PORT_FILE))
        except (OSError, ValueError):
            return 0

    def _unchecked(self) -> NodeCheck:
        """A check result with only this node's address."""
        node = self._node.as_seen_by_others()
        return NodeCheck(address=node.address, interface=node.interface)

    def _has_lost_port(self, state: dict[str, Any]) -> bool:
        """Whether torchrun on rank 0's node could not listen at its port, which is then recorded as in use."""
        if state["state"] != "ended" or state["exit_code"] == 0:
            return False
        port = self._started_port()
        ports_in_use = self._ports_in_use()
        if port in ports_in_use:
            return True
        if port is None or len(ports_in_use) + 1 >= MAX_PORTS or not _reports_port_in_use(self._folder, port):
            return False
        write_whole(self._folder / PORTS_IN_USE_FILE, json.dumps({"ports": [*ports_in_use, port]}))
        return True

    def _has_moved(self) -> bool:
        """Whether the endpoint has moved from the port that this node started with."""
        return self._assigned_port not in (None, self._started_port())

    def _started_port(self) -> int | None:
        port = read_object(self._folder / LAUNCH_FILE).get("master_port")
        return port if isinstance(port, int) else None

    def _ports_in_use(self) -> list[int]:
        return list(read_object(self._folder / PORTS_IN_USE_FILE).get("ports", []))

    def _delete_start(self) -> None:
        """Delete the state of the failed start, but keep the launcher's log under another name.

        Safe to interrupt: the next call repeats it."""
        logs = self._folder / "logs"
        with suppress(OSError):
            (logs / "launcher.err").replace(logs / f"launcher-at-{self._started_port()}.err")
        for name in (STATE_FILE, "error.json", STOP_FILE, REPORTED_FILE, PORT_FILE, LAUNCH_FILE):
            (self._folder / name).unlink(missing_ok=True)


PORT_FILE = "worker/port"
PORTS_IN_USE_FILE = "worker/taken-ports.json"
"""Ports that turned out to be in use by other programs, in the order of discovery."""
MAX_PORTS = 5
"""The number of ports tried before the run fails."""
PATIENCE_S = 5.0
"""A launcher that failed before its ranks existed may have connected to a foreign program at rank 0's port; rank 0's
node detects and reports that within this time."""


def may_prepare(assignment: Assignment, folder: Path) -> bool:
    """Whether there is something to prepare: until the endpoint is known, only the interpreter is inspected."""
    return has_endpoint(assignment) or not (folder / INTERPRETER_FILE).exists()


def _open_listener(address: str, port: int, greeting: str) -> ProbeListener:
    with suppress(OSError):
        return ProbeListener(address, port, greeting)
    return ProbeListener(address, 0, greeting)  # another program has the port


def _reports_port_in_use(folder: Path, port: int) -> bool:
    with suppress(OSError):
        log_text = bytes_of(folder / "logs" / "launcher.err").decode(errors="replace")
        return re.search(rf"port: {port}\b.*EADDRINUSE", log_text) is not None
    return False


def _failed_just_now(state: dict[str, Any], clock: Clock) -> bool:
    if state["ended_at"] is None or state["exit_code"] == 0 or state["stop_requested_at"] is not None:
        return False
    return bool(0 <= clock.wall() - state["ended_at"] < PATIENCE_S)
