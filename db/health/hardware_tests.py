"""Tests of a node's devices: asked for by people, done by the node, and what follows from the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import ColumnElement, bindparam, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.exceptions import NoSuchCheck, WrongState
from db.health.incidents import remember
from db.lookups import devices_of_others, has_devices, node_named
from db.models import Attempt, HardwareTest, Node, Task
from db.people import audit
from domain.health.quarantine import NODE, Incident, IncidentKind
from domain.health.testing import LIMIT_S, DesiredTest, DeviceResult, TestAnswer, compared, verdict, wrong
from domain.health.views import HardwareTestView
from domain.liveness import is_silent
from domain.people.audit import AuditAction

MOST_COMPARED = 10
_REQUESTS = (
    select(HardwareTest, Node)
    .join(Node, Node.id == HardwareTest.node_id)
    .where(HardwareTest.node_id == bindparam("node"), HardwareTest.ended_at.is_(None))
    .where(HardwareTest.asked_at > bindparam("since"))
)
"""Built once: every poll of a node asks it."""
NO_ANSWER = DeviceResult(part="test", text="The node did not answer.")


def ask(store: Store, name_or_id: str, now: float) -> tuple[int, str]:
    """Ask a node to test its devices that no run has; return the test's id and the node's. One that is under way is
    not asked for again. Raises NoSuchNode, WrongState."""
    with store.write() as session:
        node = node_named(session, name_or_id)
        open_test = select(HardwareTest.id).where(HardwareTest.node_id == node.id, _is_open(now))
        if (test_id := session.scalar(open_test)) is not None:
            return test_id, node.id
        devices = _free_devices(session, node)
        if node.pool:
            raise WrongState(f"Node {node.name} belongs to Slurm: test it there, then `rankzero nodes release`.")
        if is_silent(now - node.last_seen):
            raise WrongState(f"Node {node.name} is out of contact; test it when it is back.")
        if not devices:
            raise WrongState(f"All devices of node {node.name} are in use; test it when its runs have ended.")
        test = HardwareTest(node_id=node.id, devices=devices, asked_at=now, by=acting.rights().by)
        session.add(test)
        session.flush()
        audit.record(session, AuditAction.HARDWARE_TESTED, f"node {node.name}")
        return test.id, node.id


def requests(session: Session, node_id: str, now: float) -> list[DesiredTest]:
    """The tests that a node is to do."""
    rows = session.execute(_REQUESTS, {"node": node_id, "since": now - LIMIT_S})
    return [DesiredTest(test_id=test.id, devices=test.devices, kind=_kind(node)) for test, node in rows]


def answered(store: Store, node_id: str, test_id: int, answer: TestAnswer, now: float) -> None:
    """Store a node's results: a passed test ends quarantines, a wrong result begins one. Late ones change nothing."""
    with store.write() as session:
        test = session.get(HardwareTest, test_id)
        if test is None or test.node_id != node_id or test.ended_at is not None:
            return
        node = session.get_one(Node, node_id)
        results = list(answer.results)
        if (speed := compared(answer.reduce_bytes_per_s, _earlier(session, test), _kind(node))) is not None:
            results.append(speed)
        test.ended_at, test.reduce_bytes_per_s = now, answer.reduce_bytes_per_s
        test.results = [result.model_dump() for result in results]
        test.verdict = verdict(results)
        session.flush()
        _conclude(session, node, test, results, now)


def test_view(store: Store, test_id: int, now: float) -> HardwareTestView:
    """One test with its results so far. Raises NoSuchCheck."""
    with store.read() as session:
        test = session.get(HardwareTest, test_id)
        if test is None:
            raise NoSuchCheck(f"There is no test {test_id}.")
        node = session.get_one(Node, test.node_id)
        results = [DeviceResult.model_validate(result) for result in test.results or ()]
        ended_at, outcome = test.ended_at, test.verdict
        if ended_at is None and now - test.asked_at >= LIMIT_S:
            ended_at, outcome, results = test.asked_at + LIMIT_S, "unknown", [NO_ANSWER]
        return HardwareTestView(test.id, node.name, test.devices, test.asked_at, ended_at, outcome, results, test.by)


def under_test(session: Session, now: float) -> dict[str, set[str]]:
    """The devices that are being tested, by node id."""
    rows = session.execute(select(HardwareTest.node_id, HardwareTest.devices).where(_is_open(now)))
    return {node_id: set(devices) for node_id, devices in rows}


def newest(session: Session, node_id: str) -> int | None:
    """The id of a node's latest test."""
    query = select(HardwareTest.id).where(HardwareTest.node_id == node_id).order_by(HardwareTest.id.desc())
    return session.scalar(query.limit(1))


def _is_open(now: float) -> ColumnElement[bool]:
    return HardwareTest.ended_at.is_(None) & (HardwareTest.asked_at > now - LIMIT_S)


def _kind(node: Node) -> Literal["cuda", "cpu"]:
    return "cuda" if any(device["kind"] == "cuda" for device in node.devices) else "cpu"


def _free_devices(session: Session, node: Node) -> list[str]:
    held = select(Task.devices).join(Attempt, Attempt.fence == Task.fence)
    held = held.where(Task.node_id == node.id, has_devices())
    used = {device for devices in session.scalars(held) for device in devices}
    used |= devices_of_others(node.foreign_devices, node.unknown_attempts)
    return [device["id"] for device in node.devices if device["id"] not in used]


def _earlier(session: Session, test: HardwareTest) -> list[float]:
    """Bytes per second of earlier all-reduces between as many devices of the node."""
    query = select(HardwareTest).where(HardwareTest.node_id == test.node_id, HardwareTest.verdict == "passed")
    passed = session.scalars(query.order_by(HardwareTest.id.desc()).limit(MOST_COMPARED))
    alike = [one for one in passed if len(one.devices) == len(test.devices)]
    return [one.reduce_bytes_per_s for one in alike if one.reduce_bytes_per_s]


def _conclude(session: Session, node: Node, test: HardwareTest, results: Sequence[DeviceResult], now: float) -> None:
    key = f"test/{test.id}"
    if test.verdict == "passed":
        is_whole = {*test.devices} == {device["id"] for device in node.devices}
        for device in [NODE] if is_whole else test.devices:
            incident = Incident(IncidentKind.PASSED, now, "All test results were correct.", device)
            remember(session, node, incident, f"{key}/{device}", now)
    for result in wrong(results):
        incident = Incident(IncidentKind.WRONG, now, f"Test of {result.part}: {result.text}", result.device)
        remember(session, node, incident, f"{key}/{result.device}/{result.part}", now)
