"""Nodes that are lost: when the rest of an attempt is ended, what follows, and what a late return may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.attempts import attempt_queries
from db.attempts.lost_nodes import LostNodes, Share, SilentAttempt, verdict
from db.exceptions import Superseded
from db.findings import findings
from db.nodes import node_reports
from db.runs import run_queries, run_requests
from domain.messages import Finding, PointBatch, State
from tests.db import task_streams
from tests.db.attempts.offers import store_checkpoint
from tests.db.cluster import Cluster, facts, send_heartbeat

TORCH = {"path": "/usr/bin/python", "python": "3.11.8", "torch": "2.13.0"}


class Three:
    """Three nodes a, b and c, of which a run takes two; `pass_s` lets time pass."""

    def __init__(self, store) -> None:
        self.store = store
        names = ("a", "b", "c")
        self.nodes = {
            name: Cluster(store, node_reports.register_node(store, facts(name), None, 100.0).node_id) for name in names
        }
        self.lost_nodes, self.now, self.silent, self.bytes = LostNodes(), 100.0, set[str](), 0

    def launch(self, **spec) -> tuple[str, int]:
        """A run that trains on a and b."""
        given = {"nodes": 2, "gpus_per_node": 2, "on_nodes": ["a", "b"]} | spec
        run_id = self.nodes["a"].launch(**given)
        self.report("running", interpreter=TORCH)
        return run_id, self.fence(run_id)

    def fence(self, run_id: str) -> int:
        return attempt_queries.attempts(self.store, run_id)[-1].fence

    def report(self, state: str, names: str = "abc", **more) -> None:
        for name in names:
            for assignment in self.nodes[name].assignments():
                self.nodes[name].report(assignment.fence, state, assignment.node_rank, **more)

    def pass_s(self, seconds: int, stepping: str = "") -> list[str]:
        """Returns the runs that changed."""
        changed = []
        for leap in [5] * (seconds // 5) + [1] * (seconds % 5):
            self.now += leap
            for name, node in self.nodes.items():
                node.now = self.now
                if name not in self.silent:
                    send_heartbeat(self.store, node.node_id, self.now)
            for name in stepping:
                self.step(name)
            changed += self.lost_nodes.judge(self.store, self.now, 30.0)
        return changed

    def step(self, name: str, source: str = "probe", tag: str = "rank0/step_time_s") -> None:
        node, start = self.nodes[name], self.bytes
        self.bytes += 1
        for assignment in node.assignments():
            batch = PointBatch(
                path="p", generation=0, start=start, end=start + 1, source=source,
                series={tag: [(start + 1, 0.1, self.now)]},
            )  # fmt: skip
            task_streams.points_arrived(self.store, node.node_id, assignment.fence, assignment.node_rank, batch)

    def run(self, run_id: str):
        return run_queries.run(self.store, run_id, self.now)

    def actions(self, name: str) -> list[str]:
        return [assignment.action for assignment in self.nodes[name].assignments()]

    def history(self, run_id: str) -> list[str]:
        return [line.text for line in run_queries.history(self.store, run_id)]


@pytest.fixture
def three(store) -> Three:
    return Three(store)


def test_a_rest_that_stands_still_is_ended_and_the_attempt_fails_once_it_is_gone(three):
    run_id, _ = three.launch()
    three.pass_s(3, stepping="a")
    three.silent.add("b")
    assert three.pass_s(29) == [] and three.actions("a") == ["run"]
    assert three.pass_s(15) == [run_id]
    assert three.actions("a") == ["stop"] and three.nodes["a"].assignments()[0].grace_s == 10
    assert three.run(run_id).state == State.RUNNING  # a wish changes no state
    three.report("stopping", "a")
    assert three.pass_s(20) == [] and three.run(run_id).state == State.STOPPING
    three.report("stopped", "a", message="Stopped.")
    assert three.run(run_id).state == State.STOPPING
    assert three.pass_s(1) == [run_id]
    ended = three.run(run_id)
    assert (ended.state, ended.reason) == (State.FAILED, "node lost")
    assert ended.message == ("The node b was lost (silent for 39 s), and the ranks on a have made no step for 34 s.")
    assert three.pass_s(60) == []


def test_a_rest_that_steps_is_left_alone_for_as_long_as_it_does(three):
    run_id, _ = three.launch()
    three.silent.add("b")
    assert three.pass_s(100, stepping="a") == []
    assert three.run(run_id).state == State.RUNNING and three.run(run_id).lost_contact


def test_without_a_probe_every_point_is_a_sign_of_life(three):
    run_id, _ = three.launch()
    three.silent.add("b")
    for _ in range(15):
        three.step("a", "events", "train/loss")
        assert three.pass_s(5) == []
    assert three.pass_s(40) == [run_id]


def test_slow_steps_are_waited_for(three):
    three.launch()
    for _ in range(5):
        node, (assignment,) = three.nodes["a"], three.nodes["a"].assignments()
        start, three.bytes = three.bytes, three.bytes + 1
        batch = PointBatch(
            path="p", generation=0, start=start, end=start + 1, source="probe",
            series={"rank0/step_time_s": [(start + 1, 60.0, three.now)]},
        )  # fmt: skip
        task_streams.points_arrived(three.store, node.node_id, assignment.fence, 0, batch)
    three.silent.add("b")
    assert three.pass_s(180) == [] and len(three.pass_s(10)) == 1


def test_hang_that_the_worker_reports_needs_no_further_wait(three):
    run_id, fence = three.launch()
    three.silent.add("b")
    three.pass_s(25, stepping="a")
    node = three.nodes["a"]
    said = [Finding(kind="hung", evidence="No rank has made a step for 5 s.")]
    findings.findings_reported(three.store, node.node_id, fence, 0, said, three.now)
    assert three.pass_s(6) == [run_id]


def test_a_run_may_say_that_a_lost_node_ends_it_at_once(three):
    run_id, _ = three.launch(on_lost_node="end")
    three.silent.add("b")
    assert three.pass_s(29, stepping="a") == [] and three.pass_s(1, stepping="a") == [run_id]
    three.report("stopped", "a")
    three.pass_s(1)
    assert three.run(run_id).message == ("The node b was lost (silent for 30 s), and the run is set to end then.")


@pytest.mark.parametrize("silent", ["ab", "a"])
def test_when_nobody_can_be_heard_nothing_is_judged(three, silent):
    """Of two silent nodes the server itself may be the one that is cut off; a run on one node goes on unheard."""
    run_id, _ = three.launch(**({} if silent == "ab" else {"nodes": 1, "on_nodes": ["a"]}))
    three.silent.update(silent)
    assert three.pass_s(100) == []
    assert three.run(run_id).state == State.RUNNING


def test_a_run_on_one_node_goes_on_elsewhere_if_it_says_so(three):
    run_id, _ = three.launch(nodes=1, on_nodes=[], on_lost_node="end", max_restarts=1)
    where = attempt_queries.attempts(three.store, run_id)[0].tasks[0].node
    three.silent.add(where)
    assert three.pass_s(32) == [run_id, run_id]
    first, second = attempt_queries.attempts(three.store, run_id)
    assert (first.state, second.state) == (State.FAILED, State.QUEUED)
    next(node for name, node in three.nodes.items() if name != where).place()
    assert attempt_queries.attempts(three.store, run_id)[1].tasks[0].node != where


def lose_b_and_restart(three, **spec) -> tuple[str, int]:
    """The run's second attempt is placed on a and c."""
    run_id, fence = three.launch(on_lost_node="end", max_restarts=1, on_nodes=["a", "b", "c"], **spec)
    used = {task.node for task in attempt_queries.attempts(three.store, run_id)[0].tasks}
    assert used == {"a", "b"}
    three.silent.add("b")
    three.pass_s(30, stepping="a")
    three.report("stopped", "a")
    three.pass_s(1)
    three.nodes["a"].now = three.now
    three.nodes["a"].place()
    return run_id, fence


def test_it_starts_again_on_the_nodes_there_are(three):
    run_id, fence = three.launch(on_lost_node="end", max_restarts=1, on_nodes=["a", "b", "c"])
    store_checkpoint(three.nodes["a"], fence)
    three.silent.add("b")
    three.pass_s(30, stepping="a")
    three.report("stopped", "a")
    three.pass_s(1)
    three.nodes["a"].place()
    assert "restarted (1 of 1): the node b was lost (silent for 30 s), and" in "\n".join(three.history(run_id))
    assert any(text.endswith("; from step 10 of work/step_10.pt") for text in three.history(run_id))
    second = attempt_queries.attempts(three.store, run_id)[1]
    assert {task.node for task in second.tasks} == {"a", "c"}
    assert second.resumed_from == "work/step_10.pt"


def test_a_node_that_comes_back_late_is_told_to_end_and_its_devices_wait_for_the_proof(three):
    run_id, fence = lose_b_and_restart(three)
    assert {task.node for task in attempt_queries.attempts(three.store, run_id)[1].tasks} == {"a", "c"}
    three.silent.clear()
    three.pass_s(1)
    b = three.nodes["b"]
    assert [(assignment.fence, assignment.action, assignment.grace_s) for assignment in b.assignments()] == [
        (fence, "stop", 10)
    ]
    third = three.nodes["b"].launch(gpus_per_node=2, on_nodes=["b"])
    assert three.run(third).state == State.QUEUED  # what is left of the old attempt has its devices
    with pytest.raises(Superseded):
        b.report(fence, "stopping", 1)
    batch = PointBatch(path="late", generation=0, start=0, end=5, series={"train/loss": [(7, 0.5, 1.0)]})
    assert task_streams.points_arrived(three.store, b.node_id, fence, 1, batch).attempt == 1
    assert b.report(fence, "failed", 1, reason="script error", message="rank 1 lost the others") == State.FAILED
    assert b.assignments() == []
    first, second = attempt_queries.attempts(three.store, run_id)
    assert (first.state, first.reason) == (State.FAILED, "node lost") and second.state == State.STARTING
    assert "b is back: no process of this attempt is left there" in three.history(run_id)[-1]
    b.place()
    assert three.run(third).state == State.STARTING
    with pytest.raises(Superseded):
        b.report(fence, "stopped", 1)


def test_a_node_that_is_back_before_the_rest_is_gone_ends_with_it(three):
    run_id, _ = three.launch(on_lost_node="end")
    three.silent.add("b")
    three.pass_s(30)
    three.silent.clear()
    three.pass_s(1)
    assert three.actions("b") == ["stop"]
    three.report("stopped", "a")
    three.report("stopped", "b")
    assert (three.run(run_id).state, three.run(run_id).reason) == (State.FAILED, "node lost")
    assert three.actions("b") == []


def test_a_stop_ends_with_a_sentence_on_who_could_not_be_asked(three):
    run_id, _ = three.launch(max_restarts=5)
    three.silent.add("b")
    three.pass_s(5)
    run_requests.request_stop(three.store, run_id, three.now)
    assert three.run(run_id).waiting_for == "waits for a and b"
    assert three.run(run_id).kill_at == three.now + 30
    three.report("stopped", "a", message="Stopped.")
    three.pass_s(10)
    waiting = three.run(run_id)
    assert waiting.waiting_for == "waits for b, which has been silent for 15 s"
    assert waiting.silent_nodes == ["b"]
    assert three.pass_s(14) == [] and three.pass_s(1) == [run_id]
    ended = three.run(run_id)
    assert (ended.waiting_for, ended.kill_at) == (None, None)
    assert (ended.state, ended.attempt) == (State.STOPPED, 1)
    assert ended.message == (
        "Stopped; b could not be asked: it has been silent for 30 s. "
        "Processes still running there end as soon as it is back."
    )
    three.silent.clear()
    three.pass_s(1)
    assert three.actions("b") == ["stop"]
    three.report("stopped", "b")
    assert three.run(run_id).state == State.STOPPED and three.actions("b") == []


def test_a_node_lost_before_the_start_may_prove_its_end_before_the_others(three):
    run_id = three.nodes["a"].launch(nodes=2, gpus_per_node=2, on_nodes=["a", "b"])
    fence = three.fence(run_id)
    three.silent.add("b")
    assert three.pass_s(30) == [run_id] and three.actions("a") == ["stop"]
    assert three.nodes["b"].report(fence, "stopped", 1) == State.STOPPING
    assert three.actions("b") == []
    three.report("stopped", "a")
    assert (three.run(run_id).state, three.run(run_id).reason) == (State.FAILED, "node lost")


def test_ranks_that_hang_because_a_node_is_lost_are_not_the_reason(three):
    run_id, fence = three.launch()
    three.silent.add("b")
    three.nodes["a"].report(fence, "failed", 0, reason="hung", message="No rank has made a step for 20 s.")
    three.pass_s(30)
    assert three.run(run_id).reason == "node lost"


def test_a_failure_elsewhere_does_not_wait_for_a_lost_node_for_ever(three):
    run_id, fence = three.launch()
    three.silent.add("b")
    consequence = {"exception": "ConnectionError", "is_consequence": True, "at": 5.0}
    three.nodes["a"].report(fence, "failed", 0, message="rank 0 lost the others", error=consequence)
    assert three.pass_s(29) == [] and three.pass_s(1) == [run_id]
    assert three.run(run_id).reason == "node lost"


def test_when_all_others_have_ended_well_the_lost_one_is_waited_for_as_long_as_ranks_that_stand_still(three):
    run_id, fence = three.launch()
    three.silent.add("b")
    three.nodes["a"].report(fence, "succeeded", 0)
    three.pass_s(42)
    assert three.run(run_id).message == ("The node b was lost (silent for 35 s), and all the others have ended.")


def test_one_word_from_the_node_before_the_decision_is_enough(three):
    run_id, _ = three.launch()
    three.silent.add("b")
    three.pass_s(29)
    three.silent.clear()
    three.pass_s(1)
    three.silent.add("b")
    assert three.pass_s(29) == [] and three.run(run_id).state == State.RUNNING


def situation(*shares: Share, **more) -> SilentAttempt:
    return SilentAttempt(shares, **({"is_ending": False, "has_started": True, "still_s": 99.0} | more))


SHARES = st.builds(Share, st.integers(0, 9), st.text(), st.floats(0, 1e6), st.booleans())


@given(shares=st.lists(SHARES, max_size=5), still_s=st.floats(0, 29), step_s=st.floats(0, 1e6))
def test_whatever_is_silent_a_rest_that_steps_is_not_ended(shares, still_s, step_s):
    assert verdict(situation(*shares, still_s=still_s, step_s=step_s), 30.0, 10.0) == "wait"


@given(shares=st.lists(SHARES, max_size=5), ends_at_once=st.booleans())
def test_nothing_is_written_off_while_somebody_can_still_report(shares, ends_at_once):
    state = verdict(situation(*shares, is_ending=True, ends_at_once=ends_at_once), 30.0, 10.0)
    left = [share for share in shares if not share.has_ended]
    assert (state == "write off") == (bool(left) and all(share.silent_s >= 30 for share in left))


def test_a_silent_but_not_lost_rest_may_train_unheard():
    lost, silent = Share(0, "a", 40.0, False), Share(1, "b", 15.0, False)
    assert verdict(situation(lost, silent), 30.0, 10.0) == "wait"
    assert verdict(situation(lost, Share(1, "b", 5.0, False)), 30.0, 10.0) == "end"
    assert verdict(situation(lost, silent, is_ending=True), 30.0, 10.0) == "wait"
