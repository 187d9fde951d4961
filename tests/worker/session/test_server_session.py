"""When a node asks, waits and speaks up, to the second, on virtual time."""

from __future__ import annotations

import logging
import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest

from domain.messages import NodeFacts, NodeLoad
from domain.protocol import PROTOCOL
from tests.virtual_time import VirtualTime
from worker.node.threads import start_thread
from worker.session.answers import DesiredState, Registration
from worker.session.failures import Ended, ServerAway, Unauthorized
from worker.session.server_session import LONGEST_PAUSE_S, SILENT_S, ServerSession, SessionOwner


class FakeClient:
    """A server in memory: a poll waits until something changes."""

    url = "http://server"

    def __init__(self, time: VirtualTime) -> None:
        self.time, self.token, self.store = time, "", ""
        self.failure: Exception | None = None
        """Raised by every request."""
        self.answers_after_s = 0.0
        self.version, self.changed = 1, threading.Event()
        self.registrations: list[float] = []
        self.polls: list[float] = []
        self.loads: list[float] = []

    def change(self) -> None:
        self.version += 1
        self.changed.set()

    def register(self, facts, node_id, token, was_registered) -> Registration:
        self._answer(self.registrations)
        self.store = "s1"
        return Registration(node_id="n1", token="own", protocol=PROTOCOL, store="s1")

    def desired_state(self, version: str | None, wait_s: float) -> DesiredState:
        self._answer(self.polls)
        if version == str(self.version):
            self.time.pause(wait_s, self.changed)
            self.changed.clear()
            self._fail()
        return DesiredState(version=str(self.version), assignments=[], store="s1")

    def load(self, load) -> list:
        self._answer(self.loads)
        return []

    def remember(self, fence: int, newest: str) -> None:
        """Which attempt was the newest."""

    def _answer(self, moments: list[float]) -> None:
        moments.append(self.time.now())
        self.time.pause(self.answers_after_s)
        self._fail()

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class Owner(SessionOwner):
    def __init__(self) -> None:
        self.desired: list[str] = []
        self.removals = 0

    def facts(self) -> NodeFacts:
        return NodeFacts(name="n0", instance_id="i", hostname="h", address="127.0.0.1", devices=[], labels={}, info={})

    def load(self) -> NodeLoad:
        return NodeLoad.model_construct(notice=None)

    def on_registered(self, registration: Registration, *, may_start: bool) -> None:
        """Nothing depends on it here."""

    def on_desired_state(self, desired: DesiredState) -> None:
        self.desired.append(desired.version)

    def on_removed(self, message: str) -> None:
        self.removals += 1


class Session:
    """A session's two loops on virtual time."""

    def __init__(self, time: VirtualTime, folder) -> None:
        self.time, self.client, self.owner = time, FakeClient(time), Owner()
        identity = SimpleNamespace(file=folder / "node.json", values={}, name="n0", join_token="join")
        self.session = ServerSession(self.client, identity, self.owner, "node", time)  # type: ignore[arg-type]

    def start(self) -> None:
        for loop in (self.session.poll, self.session.report_load):
            start_thread(loop.__name__, loop, self.time)
        self.time.advance(0.0)


@pytest.fixture
def session(tmp_path):
    with VirtualTime() as time:
        yield Session(time, tmp_path)


def pauses(moments: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(moments)]


def warnings(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_a_change_arrives_at_once_and_else_a_poll_every_twenty_seconds(session):
    session.start()
    assert session.owner.desired == ["1"]
    session.time.advance(30.0)
    assert session.owner.desired == ["1", "1"]
    session.client.change()
    session.time.advance(0.0)
    assert session.owner.desired == ["1", "1", "2"]


def test_the_load_is_told_at_every_heartbeat(session):
    session.start()
    session.time.advance(30.0)
    assert pauses(session.client.loads) == [pytest.approx(5.0)] * (len(session.client.loads) - 1)
    assert len(session.client.loads) >= 6


def test_a_server_that_lets_the_first_question_wait_is_told_of_once(session, caplog):
    session.client.answers_after_s = 60.0
    session.start()
    session.time.advance(SILENT_S - 0.1)
    assert warnings(caplog) == []
    session.time.advance(50.0)
    assert [text for text in warnings(caplog) if "it has not answered" in text] == warnings(caplog)
    assert len(warnings(caplog)) == 1


def test_a_server_that_refuses_connections_is_told_of_once_and_asked_ever_more_rarely(session, caplog):
    session.client.failure = ServerAway("connection refused")
    session.start()
    session.time.advance(600.0)
    assert len(warnings(caplog)) == 1 and "connection refused" in warnings(caplog)[0]
    waits = pauses(session.client.registrations)
    assert waits[0] <= 0.2 and LONGEST_PAUSE_S / 2 <= waits[-1] <= LONGEST_PAUSE_S
    session.client.failure = None
    session.time.advance(LONGEST_PAUSE_S)
    assert session.owner.desired


def test_a_server_that_goes_and_comes_back_is_found_within_seconds(session):
    session.start()
    session.time.advance(1.0)
    session.client.failure = ServerAway("connection refused")
    session.client.change()
    session.time.advance(3600.0)
    session.client.failure = None
    session.time.advance(LONGEST_PAUSE_S)
    assert session.owner.desired[-1] == "2"
    assert len(session.client.registrations) == 1, "it is known there"


def test_a_node_that_the_server_does_not_know_registers_again(session):
    session.start()
    session.client.failure = Unauthorized("who are you?")
    session.client.change()
    session.time.advance(1.0)
    session.client.failure = None
    session.time.advance(LONGEST_PAUSE_S)
    assert len(session.client.registrations) >= 2 and session.session.registered.is_set()


def test_a_removed_node_hears_of_it_until_it_is_no_longer_so(session):
    session.start()
    session.client.failure = Ended("Node n0 was removed.")
    session.client.change()
    session.time.advance(60.0)
    assert session.owner.removals >= 60 / LONGEST_PAUSE_S


def test_a_closed_session_asks_no_more(session):
    session.start()
    session.session.close()
    session.time.advance(25.0)
    asked = len(session.client.polls)
    session.time.advance(600.0)
    assert len(session.client.polls) == asked
