"""What the nodes of one run tell each other, through the server, before any of them starts a rank."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from db.spec import Assignment
from db.states import PartReport
from worker.client import Client, Part
from worker.notes import REPORTED_FILE, read_object, write_whole
from worker.preparation import INTERPRETER_FILE, LAUNCH_FILE, Node, free_port, has_endpoint
from worker.supervisor import STATE_FILE, STOP_FILE

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

    def __init__(self, folder: Path, node: Node, client: Client, part: Part) -> None:
        self._folder, self._node, self._client, self._part = folder, node, client, part
        self._has_told_interpreter = False
        self._heard_port: int | None = None

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
        if assignment.node_rank == 0 and assignment.master_port is None:
            assignment = self._choose_endpoint(assignment)
        if not self._has_told_interpreter and (facts := read_object(self._folder / INTERPRETER_FILE)):
            self._client.report(self._part, PartReport(state="starting", interpreter=facts))
            self._has_told_interpreter = True
        return assignment

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

    def _choose_endpoint(self, assignment: Assignment) -> Assignment:
        note, address = self._folder / PORT_FILE, self._node.among_others().address
        try:
            port = int(note.read_text())
        except (OSError, ValueError):
            port = free_port(address)
            write_whole(note, str(port))
        endpoint = {"master_addr": address, "master_port": port}
        report = PartReport.model_validate({"state": "starting", **endpoint})
        self._client.report(self._part, report)
        return assignment.model_copy(update=endpoint)

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


def _says_in_use(folder: Path, port: int) -> bool:
    with suppress(OSError):
        said = (folder / "logs" / "launcher.err").read_text(errors="replace")
        return re.search(rf"port: {port}\b.*EADDRINUSE", said) is not None
    return False


def _failed_just_now(state: dict[str, Any]) -> bool:
    if state["ended_at"] is None or state["exit_code"] == 0 or state["stop_requested_at"] is not None:
        return False
    return bool(0 <= time.time() - state["ended_at"] < PATIENCE_S)
