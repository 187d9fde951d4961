"""What the nodes of one run tell each other, through the server, before any of them starts a rank."""

from __future__ import annotations

from pathlib import Path

from db.spec import Assignment
from db.states import PartReport
from worker.client import Client, Part
from worker.notes import read_object, write_whole
from worker.preparation import INTERPRETER_FILE, Node, free_port, has_endpoint


def may_prepare(assignment: Assignment, folder: Path) -> bool:
    """Before the endpoint is known, a node finds out what it trains with, and no more."""
    return has_endpoint(assignment) or not (folder / INTERPRETER_FILE).exists()


class Meeting:
    """One node's side of it; runs on one node need none."""

    def __init__(self, folder: Path, node: Node, client: Client, part: Part) -> None:
        self._folder, self._node, self._client, self._part = folder, node, client, part
        self._has_told_interpreter = False

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

    def _choose_endpoint(self, assignment: Assignment) -> Assignment:
        note = self._folder / "worker" / "port"
        try:
            port = int(note.read_text())
        except (OSError, ValueError):
            port = free_port(self._node.address)
            write_whole(note, str(port))
        endpoint = {"master_addr": self._node.address, "master_port": port}
        report = PartReport.model_validate({"state": "starting", **endpoint})
        self._client.report(self._part, report)
        return assignment.model_copy(update=endpoint)
