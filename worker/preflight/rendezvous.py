"""What the nodes of one run tell each other, through the server, before any of them starts a rank.

Rank 0's node chooses where they meet and holds that port open until all may start; each node says what it found
(`preflight`), once before its code is brought and once after."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from domain.messages import NodeCheck, Reason, TaskReport
from domain.spec import Assignment
from worker.launch.preparation import CannotStart, LocalNode, free_port, has_endpoint, interpreter_of
from worker.node.attempt_files import INTERPRETER_FILE, LAUNCH_FILE, STATE_FILE, STOP_FILE
from worker.node.state_files import REPORTED_FILE, read_object, write_whole
from worker.preflight.node_check import code_of, look_for_run, words_of
from worker.preflight.port_probe import Door
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, RequestRefused, ServerAway

PORT_FILE = "worker/port"
TAKEN_FILE = "worker/taken-ports.json"
"""Ports that other programs turned out to have, the last one at the end."""
PORTS = 5
"""So many are tried before the run fails."""
PATIENCE_S = 5.0
"""A launcher that failed before its ranks existed may have met a foreign program at the port of the other node,
which notices that, and says so, within this time."""


def may_prepare(assignment: Assignment, folder: Path) -> bool:
    """Before the endpoint is known, a node finds out what it trains with, and no more."""
    return has_endpoint(assignment) or not (folder / INTERPRETER_FILE).exists()


class Meeting:
    """One node's side of it; runs on one node need none."""

    def __init__(self, folder: Path, node: LocalNode, client: Client, part: TaskRef) -> None:
        self._folder, self._node, self._client, self._part = folder, node, client, part
        self._facts: NodeCheck | None = None
        self._told: NodeCheck | None = None
        self._telling = threading.Lock()
        self._heard_port: int | None = None
        self._door: Door | None = None

    def hear(self, assignment: Assignment) -> Assignment:
        """The server's newest word; a place that turned out to be taken is none."""
        self._heard_port = assignment.master_port
        if assignment.node_rank == 0 and assignment.master_port in self._taken():
            return assignment.model_copy(update={"master_addr": None, "master_port": None})
        return assignment

    def speak(self, assignment: Assignment) -> Assignment:
        """Say what the others wait for, as soon as it is known; returns what is known then."""
        if assignment.spec.nodes == 1:
            return assignment
        if assignment.node_rank == 0 and (assignment.master_port is None or self._must_hold(assignment)):
            assignment = self._choose_endpoint(assignment)
        self._tell()
        return assignment

    def must_look(self, assignment: Assignment) -> bool:
        """Nothing is known yet of this node, or rank 0's had to choose another port than was looked at."""
        if assignment.spec.nodes == 1 or assignment.may_start or not has_endpoint(assignment):
            return False
        facts = self._facts
        return facts is None or assignment.master_port not in (
            facts.port,
            *(way.port for way in facts.reached),
        )

    def look(self, assignment: Assignment) -> None:
        """Find out whether this node can take part; runs in the thread that prepares. Raises CannotStart."""
        if assignment.spec.nodes == 1 or assignment.may_start:
            return
        try:
            interpreter_of(assignment.spec, self._folder, self._node)
        except CannotStart as error:
            self._facts = self._stranger().model_copy(update={"interpreter": {"problem": str(error)}})
            raise
        if has_endpoint(assignment):
            self._facts = look_for_run(assignment, self._folder, self._node, self._client)
            self._tell_in_passing()

    def prepared(self, assignment: Assignment) -> None:
        """All that the attempt needs lies on this node."""
        if self._facts is not None:
            code = code_of(assignment.spec)
            self._facts = self._facts.model_copy(update={"is_prepared": True, "code": code})
            self._tell_in_passing()

    def cannot_start(self, reason: Reason, message: str) -> TaskReport:
        """Why nothing can be started here, for a run on several nodes with what was found until then."""
        found = self._facts
        if found is not None and not found.interpreter.get("problem"):
            found = found.model_copy(update={"problem": message})
        return TaskReport(state="failed", reason=reason, message=message, preflight=found)

    def leave(self) -> None:
        """The port is the launcher's from now on; also when nothing will be started."""
        if self._door is not None:
            self._door.close()
            self._door = None

    def follow(
        self, assignment: Assignment, is_supervised: Callable[[], bool]
    ) -> Literal["go on", "wait", "start over"]:
        """Whether the launcher may go on: without a rank, it may wait at a port that another program has.

        Then the first node starts over with another port, and the others as soon as they hear of it."""
        state = read_object(self._folder / STATE_FILE)
        if assignment.spec.nodes == 1 or not state or state["running_at"] is not None:
            return "go on"
        is_moving = self._found_port_taken(state) if assignment.node_rank == 0 else self._is_elsewhere()
        if not is_moving:
            return "wait" if assignment.node_rank > 0 and _failed_just_now(state) else "go on"
        if is_supervised():
            if state["state"] != "ended":
                write_whole(self._folder / STOP_FILE, "0")
            return "wait"
        self._clear()
        return "start over"

    def _tell(self) -> None:
        """Each new finding once, and never an older one after a newer."""
        with self._telling:
            facts = self._facts
            if facts is None or facts is self._told:
                return
            found = facts.interpreter if "problem" not in facts.interpreter else None
            report = TaskReport(state="starting", interpreter=found, preflight=facts)
            self._client.report(self._part, report)
            self._told = facts

    def _tell_in_passing(self) -> None:
        """At once: the others wait. What does not get through now is said again at the next turn."""
        with suppress(ServerAway, AttemptSuperseded, RequestRefused):
            self._tell()

    def _must_hold(self, assignment: Assignment) -> bool:
        return self._door is None and not assignment.may_start

    def _choose_endpoint(self, assignment: Assignment) -> Assignment:
        """The port that was chosen before (by the worker before us), unless somebody has it now, or a free one."""
        note, address = self._folder / PORT_FILE, self._node.among_others().address
        port = self._chosen_port()
        try:
            if assignment.may_start:
                port = port or free_port(address)
            else:
                self._door = self._door or _open_door(address, port, words_of(assignment))
                port = self._door.port
        except OSError as error:
            text = f"cannot listen at {address}: {(error.strerror or str(error)).lower()}"
            self._facts = self._stranger().model_copy(update={"port_problem": text})
            return assignment
        write_whole(note, str(port))
        endpoint = {"master_addr": address, "master_port": port}
        if (assignment.master_addr, assignment.master_port) != (address, port):
            self._client.report(self._part, TaskReport.model_validate({"state": "starting", **endpoint}))
        return assignment.model_copy(update=endpoint)

    def _chosen_port(self) -> int:
        try:
            return int((self._folder / PORT_FILE).read_text())
        except (OSError, ValueError):
            return 0

    def _stranger(self) -> NodeCheck:
        """A node of which no more is known than where it is."""
        node = self._node.among_others()
        return NodeCheck(address=node.address, interface=node.interface)

    def _found_port_taken(self, state: dict[str, Any]) -> bool:
        """torchrun on the first node could not listen; remembered, so that nobody is sent there again."""
        if state["state"] != "ended" or state["exit_code"] == 0:
            return False
        port = self._started_port()
        taken = self._taken()
        if port in taken:
            return True
        if port is None or len(taken) + 1 >= PORTS or not _says_in_use(self._folder, port):
            return False
        write_whole(self._folder / TAKEN_FILE, json.dumps({"ports": [*taken, port]}))
        return True

    def _is_elsewhere(self) -> bool:
        """The others are told to meet at another port than the one started with."""
        return self._heard_port not in (None, self._started_port())

    def _started_port(self) -> int | None:
        port = read_object(self._folder / LAUNCH_FILE).get("master_port")
        return port if isinstance(port, int) else None

    def _taken(self) -> list[int]:
        return list(read_object(self._folder / TAKEN_FILE).get("ports", []))

    def _clear(self) -> None:
        """As if nothing had been started; the words of the launcher stay, beside those of the next.

        Whoever is killed in the midst of it leaves what leads here again."""
        logs = self._folder / "logs"
        with suppress(OSError):
            (logs / "launcher.err").replace(logs / f"launcher-at-{self._started_port()}.err")
        for name in (STATE_FILE, "error.json", STOP_FILE, REPORTED_FILE, PORT_FILE, LAUNCH_FILE):
            (self._folder / name).unlink(missing_ok=True)


def _open_door(address: str, port: int, words: str) -> Door:
    with suppress(OSError):
        return Door(address, port, words)
    return Door(address, 0, words)  # somebody has it now


def _says_in_use(folder: Path, port: int) -> bool:
    with suppress(OSError):
        said = (folder / "logs" / "launcher.err").read_text(errors="replace")
        return re.search(rf"port: {port}\b.*EADDRINUSE", said) is not None
    return False


def _failed_just_now(state: dict[str, Any]) -> bool:
    if state["ended_at"] is None or state["exit_code"] == 0 or state["stop_requested_at"] is not None:
        return False
    return bool(0 <= time.time() - state["ended_at"] < PATIENCE_S)
