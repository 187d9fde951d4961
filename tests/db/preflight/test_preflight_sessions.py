"""Preflights in the store: asked in stages, answered in any order, and never waiting for ever."""

from __future__ import annotations

import pytest

from db.exceptions import NoSuchNode
from db.nodes import node_reports
from db.preflight import preflight_sessions, start_gate
from domain.messages import CheckAnswer, Measured, NodeCheck, Reached
from domain.requests.errors import InvalidRequest
from tests.db.cluster import facts, send_heartbeat
from tests.domain.preflight.node_checks import GOOD


class NodeAnswer:
    """Three nodes that answer as they are told."""

    def __init__(self, store) -> None:
        self.store, self.now = store, 100.0
        self.ids = [node_reports.register_node(store, facts(name), None, 100.0).node_id for name in "abc"]

    def ask(self, names=None, bandwidth=False) -> int:
        return preflight_sessions.ask(self.store, names, bandwidth, self.now)

    def check_request(self, number: int):
        (request,) = preflight_sessions.check_requests(self.store, self.ids[number])
        return request

    def answer(self, number: int, check_id: int, **said) -> bool:
        said = CheckAnswer(**said)
        return start_gate.check_answered(self.store, self.ids[number], check_id, said, self.now)[0]

    def facts(self, number: int, check_id: int, **other) -> bool:
        node_check = NodeCheck(**GOOD | {"address": f"10.0.0.{number}", "port": 4000 + number} | other)
        return self.answer(number, check_id, stage=0, facts=node_check)

    def reached(self, number: int, check_id: int, **other) -> bool:
        ways = [Reached(**peer.model_dump(), took_s=0.001, **other) for peer in self.check_request(number).peers]
        return self.answer(number, check_id, stage=1, reached=ways)

    def pass_both(self, check_id: int) -> None:
        for number in range(3):
            self.facts(number, check_id)
        for number in range(3):
            self.reached(number, check_id)

    def view(self, check_id: int):
        (view,) = preflight_sessions.views(self.store, check_id)
        return view


@pytest.fixture
def asked(store):
    return NodeAnswer(store)


def test_nodes_look_at_themselves_and_then_for_each_other(asked):
    check_id = asked.ask()
    assert asked.view(check_id).nodes == ["a", "b", "c"] and asked.check_request(0).stage == 0
    assert asked.facts(0, check_id) and asked.facts(1, check_id)
    assert asked.check_request(0).stage == 0 and asked.view(check_id).ended_at is None
    assert asked.facts(2, check_id)
    assert [(peer.node_rank, peer.port) for peer in asked.check_request(0).peers] == [(1, 4001), (2, 4002)]
    for number in range(3):
        asked.now += 1
        assert asked.reached(number, check_id)
    view = asked.view(check_id)
    assert view.ended_at == 103.0 and not view.failed and view.run_id is None
    assert {cell.value for cell in view.cells if cell.row == "reach"} == {"2 of 2 nodes, 1.0 ms"}
    assert preflight_sessions.check_requests(asked.store, asked.ids[0]) == []
    assert [each.id for each in preflight_sessions.views(asked.store)] == [check_id]


def test_late_and_repeated_answers_change_nothing(asked):
    check_id = asked.ask()
    assert asked.facts(0, check_id) and not asked.facts(0, check_id, disk_free_bytes=0)
    assert not asked.answer(1, check_id, stage=1, reached=[])
    assert not asked.answer(1, 999, stage=0)
    assert not asked.view(check_id).failed


def test_a_silent_node_is_given_up_and_the_others_go_on(asked):
    check_id = asked.ask()
    asked.facts(0, check_id)
    asked.facts(1, check_id)
    asked.now = 109.0
    assert start_gate.checks_overdue(asked.store, asked.now) == (False, [])
    asked.now = 111.0
    assert start_gate.checks_overdue(asked.store, asked.now) == (True, [])
    assert [peer.node_rank for peer in asked.check_request(0).peers] == [1]
    asked.reached(0, check_id)
    asked.reached(1, check_id)
    (cell,) = asked.view(check_id).failed
    assert (cell.row, cell.node, cell.value) == ("alive", "c", "silent for 11 s")


def test_who_was_silent_before_is_not_waited_for_long(asked):
    asked.now = 1000.0
    for node in asked.ids[:2]:
        send_heartbeat(asked.store, node, asked.now)
    check_id = asked.ask(["a", "c"])
    asked.facts(0, check_id)
    start_gate.checks_overdue(asked.store, 1004.0)
    (cell,) = asked.view(check_id).failed
    assert cell.value == "silent for 904 s" and asked.view(check_id).ended_at == 1004.0
    assert asked.view(asked.ask()).nodes == ["a", "b"]  # of its own accord only those that are alive


def test_a_slow_node_that_is_alive_gets_more_time(asked):
    check_id = asked.ask()
    for node in asked.ids:
        send_heartbeat(asked.store, node, 130.0)
    assert start_gate.checks_overdue(asked.store, 139.0) == (False, [])
    assert start_gate.checks_overdue(asked.store, 141.0) == (True, [])
    assert asked.view(check_id).ended_at == 141.0


def test_pairs_measure_in_rounds_and_passes_are_remembered(asked):
    check_id = asked.ask(bandwidth=True)
    asked.pass_both(check_id)
    seen = []
    while asked.view(check_id).ended_at is None:
        pairs = [(n, asked.check_request(n).pair) for n in range(3) if asked.check_request(n).pair]
        assert [pair.rank for _, pair in pairs] == [0, 1] and pairs[0][1].backend == "gloo"
        assert pairs[0][1].port == 4000 + pairs[0][0]
        seen.append(tuple(number for number, _ in pairs))
        for number, _ in pairs:
            measured = Measured(bytes_per_s=1e9 + number)
            asked.answer(number, check_id, stage=asked.check_request(number).stage, measured=measured)
    assert sorted(seen) == [(0, 1), (0, 2), (1, 2)]
    view = asked.view(check_id)
    assert view.bandwidth == [[None, 1e9, 1e9], [1e9, None, 1e9 + 1], [1e9, 1e9 + 1, None]]
    checks = [(node, NodeCheck(**GOOD | {"address": f"10.0.0.{n}"})) for n, node in enumerate(asked.ids)]
    with asked.store.read() as session:
        assert preflight_sessions.not_passed(session, checks, [(0, 1), (1, 2)]) == []
        checks[1] = (asked.ids[1], NodeCheck(**GOOD | {"address": "10.0.9.9"}))
        assert preflight_sessions.not_passed(session, checks, [(0, 1), (0, 2)]) == [(0, 1)]


def test_a_pair_that_fails_or_never_ends_is_red(asked):
    check_id = asked.ask(["a", "b"], bandwidth=True)
    for step in (asked.facts, asked.reached):
        step(0, check_id)
        step(1, check_id)
    asked.answer(0, check_id, stage=2, measured=Measured(bytes_per_s=1.0))
    assert start_gate.checks_overdue(asked.store, asked.now + 181) == (True, [])
    (cell,) = asked.view(check_id).failed
    assert (cell.row, cell.node, cell.peer) == ("bandwidth", "a", "b")
    assert cell.value == "b gave no result within 180 s"


def test_who_does_not_reach_each_other_measures_nothing(asked):
    check_id = asked.ask(["a", "b"], bandwidth=True)
    asked.facts(0, check_id)
    asked.facts(1, check_id)
    asked.reached(0, check_id)
    asked.reached(1, check_id, trouble="silent", problem="no answer in 2 s")
    view = asked.view(check_id)
    assert view.ended_at is not None and [cell.row for cell in view.failed] == ["reach"]


def test_a_node_alone_looks_only_at_itself(asked):
    check_id = asked.ask([asked.ids[2]])
    asked.facts(2, check_id)
    assert asked.view(check_id).ended_at is not None


def test_only_the_last_ones_are_kept(asked):
    for _ in range(preflight_sessions.MOST_REMEMBERED + 5):
        check_id = asked.ask(["a"])
        asked.facts(0, check_id)
    assert len(preflight_sessions.views(asked.store)) == preflight_sessions.MOST_REMEMBERED


def test_an_unknown_node_and_no_node_are_refused(asked):
    with pytest.raises(NoSuchNode):
        asked.ask(["a", "nobody"])
    asked.now = 5000.0
    with pytest.raises(InvalidRequest):
        asked.ask()
