"""A run that makes do with fewer nodes: what its attempts get, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.attempts import attempt_queries
from db.attempts.lost_nodes import LostNodes
from db.checkpoints import checkpoint_reports
from db.nodes import node_queries, node_reports, node_requests
from db.runs import run_queries, run_requests
from db.scheduling import elastic, queue_placement
from db.tasks import desired_state
from domain.messages import CheckpointOffer, State
from domain.requests.errors import InvalidRequest
from domain.scheduling.models import Allocation
from domain.scheduling.placement import place
from domain.scheduling.placement import turn as place_turn
from domain.spec import RunSpec
from tests.db.cluster import Cluster, facts, send_heartbeat
from tests.db.clusters import host, hosts, queues, want


class Rack(Cluster):
    """Several nodes with two slots each, on which every part is reported at once."""

    def join(self, name: str) -> str:
        return node_reports.register_node(self.store, facts(name), None, self.now).node_id

    def place(self) -> list[str]:
        for node in node_queries.nodes(self.store, self.now):
            send_heartbeat(self.store, node.id, self.now)
        return queue_placement.place_queue(self.store, self.now, silent_after_s=30)

    def attempt(self, run_id: str):
        return attempt_queries.attempts(self.store, run_id)[-1]

    def view(self, run_id: str):
        view = run_queries.run(self.store, run_id, self.now)
        assert view is not None
        return view

    def everywhere(self, run_id: str, state: State, **more) -> None:
        """All nodes of the latest attempt report this."""
        attempt = self.attempt(run_id)
        by_name = {node.name: node.id for node in node_queries.nodes(self.store, self.now)}
        for task in attempt.tasks:
            self.node_id = by_name[task.node]
            self.report(attempt.fence, state, task.node_rank, **more)

    def save(self, run_id: str, step: int) -> str | None:
        """Rank 0's node hands over a checkpoint, and it is complete; the run's id if it is to go on with others."""
        attempt = self.attempt(run_id)
        node = next(n for n in node_queries.nodes(self.store, self.now) if n.name == attempt.tasks[0].node)
        offer = CheckpointOffer(path="last.pt", step=step, size_bytes=1, sha256=f"{step:064x}", written_at=self.now)
        offered = checkpoint_reports.offered(self.store, node.id, attempt.fence, 0, offer, self.now)
        checkpoint_reports.completed(self.store, offered.id, self.now)
        return elastic.resize_at_checkpoint(self.store, offered.id, self.now)

    def actions(self, run_id: str) -> set[str]:
        """What the nodes of the latest attempt are told to do."""
        fence = self.attempt(run_id).fence
        assigned = [desired_state.assignments(self.store, n.id) for n in node_queries.nodes(self.store, self.now)]
        return {assignment.action for each in assigned for assignment in each if assignment.fence == fence}

    def pass_time(self, seconds: float) -> None:
        """All nodes are heard again."""
        self.now += seconds
        for node in node_queries.nodes(self.store, self.now):
            send_heartbeat(self.store, node.id, self.now)

    def said(self, run_id: str) -> list[str]:
        return [line.text for line in run_queries.history(self.store, run_id)]


@pytest.fixture
def rack(store) -> Rack:
    made = Rack(store, "")
    for name in ("a", "b"):
        made.join(name)
    return made


ELASTIC = {"nodes": 4, "min_nodes": 2, "elastic": True, "gpus_per_node": 2, "lr_scaling": "linear"}


def test_an_elastic_run_starts_with_the_nodes_there_are_and_keeps_its_global_batch(rack):
    run_id = rack.launch(**ELASTIC)
    view = rack.view(run_id)
    assert (view.state, view.nodes, view.world_size) == (State.STARTING, 2, 4)
    assert (view.global_batch_size, view.base_lr, view.lr) == (64, 0.1, pytest.approx(0.8))
    assert (view.spec.nodes, view.spec.accumulate) == (4, 1)
    assert "launched: image_classifier on 2 to 4 nodes, at most 8 ranks" in rack.said(run_id)
    assert rack.said(run_id)[-1] == (
        "on 2 of 4 nodes, 4 of 8 ranks: global batch 64 kept, accumulation 1 → 2; learning rate 0.8 unchanged"
    )


def test_workers_are_told_what_the_attempt_has_not_what_the_run_was_launched_with(rack):
    run_id = rack.launch(**ELASTIC)
    by_name = {node.name: node.id for node in node_queries.nodes(rack.store, rack.now)}
    for name in ("a", "b"):
        (assignment,) = desired_state.assignments(rack.store, by_name[name])
        assert (assignment.spec.nodes, assignment.spec.accumulate) == (2, 2)
        assert assignment.spec.scaled_lr == pytest.approx(0.8)
        assert RunSpec.model_validate_json(assignment.spec.model_dump_json()) == assignment.spec
    assert rack.attempt(run_id).changes["nodes"] == 2


def test_it_gets_no_more_nodes_than_it_names(rack):
    for name in ("c", "d", "e"):
        rack.join(name)
    view = rack.view(rack.launch(**ELASTIC))
    assert (view.nodes, view.global_batch_size, view.lr) == (4, 64, pytest.approx(0.8))


def test_one_node_is_too_few_and_the_words_say_so(store):
    rack = Rack(store, "")
    rack.join("a")
    with pytest.raises(InvalidRequest, match="the run needs 2 to 4 nodes with 2 slots each, but 1 node"):
        rack.launch(**ELASTIC)
    view = rack.view(rack.launch(**ELASTIC, wait_for_nodes=True))
    assert view.waiting_for.startswith("needs at least 4 slots on 2 to 4 nodes, 2 are free")
    rack.join("b")
    assert rack.launch(**ELASTIC), "a node that has just joined counts at once"


def test_a_run_that_is_not_elastic_waits_for_all_its_nodes_at_first_but_not_later(rack):
    run_id = rack.launch(**ELASTIC | {"elastic": False, "nodes": 2, "min_nodes": 1})
    assert rack.attempt(run_id).changes == {}
    rack.everywhere(run_id, State.FAILED, reason="node lost")
    other = rack.launch(gpus_per_node=2)
    run_requests.resume(rack.store, run_id, rack.now)
    rack.place()
    view = rack.view(run_id)
    assert (view.state, view.nodes, view.global_batch_size) == (State.STARTING, 1, 32)
    assert "on 1 of 2 nodes, 2 of 4 ranks: global batch 32 kept" in rack.said(run_id)[-1]
    rack.everywhere(run_id, State.FAILED, reason="node lost")
    rack.everywhere(other, State.SUCCEEDED)
    run_requests.resume(rack.store, run_id, rack.now)
    rack.place()
    assert rack.view(run_id).nodes == 2
    assert rack.said(run_id)[-1] == "on all 2 nodes: batch and learning rate as launched"


def test_a_run_on_all_its_nodes_says_nothing_of_it(rack):
    run_id = rack.launch(nodes=2, gpus_per_node=2)
    assert rack.said(run_id)[-1].startswith("placed on ")


# -- growing and shrinking at a checkpoint -------------------------------------------------------------


@pytest.fixture
def grown(rack) -> tuple[Rack, str]:
    """A run that trains on two of at most four nodes, for long enough, beside a third node that is free."""
    run_id = rack.launch(**ELASTIC)
    rack.everywhere(run_id, State.RUNNING)
    rack.pass_time(3600)
    rack.join("c")
    return rack, run_id


def test_a_run_grows_at_its_next_checkpoint_and_is_never_seen_as_ended(grown):
    rack, run_id = grown
    assert rack.actions(run_id) == {"run"}
    assert rack.save(run_id, 40) == run_id
    assert rack.actions(run_id) == {"stop"}
    assert rack.said(run_id)[-1] == "ends at checkpoint last.pt to continue on 3 nodes: c is free"
    assert rack.view(run_id).waiting_for == (
        "ends at checkpoint last.pt to continue on 3 nodes: c is free; waits for a and b"
    )
    assert rack.save(run_id, 50) is None  # the one that is saved on the way out
    rack.everywhere(run_id, State.STOPPED)
    first, second = attempt_queries.attempts(rack.store, run_id)
    assert (first.state, first.message) == (
        State.STOPPED,
        "Ended at checkpoint last.pt to continue on 3 nodes: c is free.",
    )
    assert (second.state, second.resumed_from) == (State.QUEUED, "last.pt")
    assert rack.said(run_id)[-1] == "continues on the available nodes; from step 50 of last.pt"
    rack.place()
    view = rack.view(run_id)
    assert (view.state, view.nodes, view.lr) == (State.STARTING, 3, pytest.approx(0.8))


def test_it_does_not_grow_before_it_has_trained_for_long_enough(rack):
    run_id = rack.launch(**ELASTIC)
    rack.pass_time(20)  # its start-up
    rack.everywhere(run_id, State.RUNNING)
    rack.join("c")
    for seconds, grows in (60, False), (130, False), (20, True):
        rack.pass_time(seconds)
        assert (rack.save(run_id, int(rack.now)) == run_id) == grows


def test_resized_run_keeps_its_devices_between_attempts(grown):
    rack, run_id = grown
    rack.save(run_id, 40)
    other = rack.launch(gpus_per_node=2, priority=-1, on_nodes=["a"])
    attempt = rack.attempt(run_id)
    rack.node_id = next(n.id for n in node_queries.nodes(rack.store, rack.now) if n.name == "a")
    rack.report(attempt.fence, State.STOPPED, 0)
    assert rack.place() == []
    rack.everywhere(run_id, State.STOPPED)
    rack.place()
    assert (rack.view(run_id).nodes, rack.view(other).state) == (3, State.QUEUED)


def test_a_node_that_drains_is_left_at_the_next_checkpoint(rack):
    rack.join("c")
    run_id = rack.launch(**ELASTIC)
    rack.everywhere(run_id, State.RUNNING)
    node_requests.drain(rack.store, "b", rack.now)
    assert rack.actions(run_id) == {"run"}
    assert rack.save(run_id, 10) == run_id
    rack.everywhere(run_id, State.STOPPED)
    rack.place()
    assert rack.attempt(run_id).state == State.STARTING
    assert [task.node for task in rack.attempt(run_id).tasks] == ["a", "c"]
    assert attempt_queries.attempts(rack.store, run_id)[0].message == (
        "Ended at checkpoint last.pt to continue on 2 nodes: b drains."
    )


def test_it_stays_on_a_node_that_drains_where_too_few_would_be_left(rack):
    run_id = rack.launch(**ELASTIC)
    rack.everywhere(run_id, State.RUNNING)
    node_requests.drain(rack.store, "b", rack.now)
    assert rack.save(run_id, 10) is None


def test_a_run_that_is_not_elastic_is_never_resized(rack):
    run_id = rack.launch(**ELASTIC | {"elastic": False, "nodes": 2, "max_restarts": 3})
    rack.everywhere(run_id, State.RUNNING)
    rack.pass_time(3600)
    rack.join("c")
    node_requests.drain(rack.store, "b", rack.now)
    assert rack.save(run_id, 10) is None
    assert rack.actions(run_id) == {"run"}


def test_a_person_who_stops_it_meanwhile_is_obeyed(grown):
    rack, run_id = grown
    rack.save(run_id, 40)
    run_requests.request_stop(rack.store, run_id, rack.now)
    rack.everywhere(run_id, State.STOPPED, message="it was stopped")
    (attempt,) = attempt_queries.attempts(rack.store, run_id)
    assert (attempt.state, attempt.message) == (State.STOPPED, "it was stopped")


def test_one_that_reaches_its_end_meanwhile_has_ended(grown):
    rack, run_id = grown
    rack.save(run_id, 40)
    rack.everywhere(run_id, State.SUCCEEDED)
    assert (rack.view(run_id).state, rack.view(run_id).attempt) == (State.SUCCEEDED, 1)


def test_a_run_that_waits_with_the_same_priority_gets_the_node_first(grown):
    rack, run_id = grown
    larger = rack.launch(nodes=2, gpus_per_node=2, wait_for_nodes=True)
    assert rack.view(larger).state == State.QUEUED
    assert rack.save(run_id, 40) is None


def test_an_elastic_run_goes_on_without_a_lost_node_and_needs_no_restarts_for_that(rack):
    rack.join("c")
    run_id = rack.launch(**ELASTIC)
    rack.everywhere(run_id, State.RUNNING)
    rack.save(run_id, 10)
    lost = LostNodes()
    names = {n.name: n.id for n in node_queries.nodes(rack.store, rack.now)}
    for _ in range(8):
        rack.now += 10
        for name in ("a", "b"):
            send_heartbeat(rack.store, names[name], rack.now)
        lost.judge(rack.store, rack.now, 30.0)
    assert rack.actions(run_id) == {"stop"}
    attempt = rack.attempt(run_id)
    for node_rank, name in enumerate("ab"):
        rack.node_id = names[name]
        rack.report(attempt.fence, State.STOPPED, node_rank)
    lost.judge(rack.store, rack.now, 30.0)
    first, second = attempt_queries.attempts(rack.store, run_id)
    assert (first.state, first.reason, second.state) == (State.FAILED, "node lost", State.QUEUED)
    queue_placement.place_queue(rack.store, rack.now, silent_after_s=30)
    assert [task.node for task in rack.attempt(run_id).tasks] == ["a", "b"]


def others(known, here, nodes=3, queue=(), may_grow=True, **more):
    run = want(0, nodes=nodes, devices=2, fewest_nodes=1, run_id="mine", **more)
    offered = elastic.other_nodes(run, here, known, queue, 0.0, may_grow=may_grow)
    return offered and sorted(node.removeprefix("id-") for node in offered)


def mine(name, **more):
    return host(name, 0, [("mine", 2, None)], **more)


def test_nodes_alone_decide_whether_a_run_is_resized():
    assert others([mine("a"), host("b", 2)], {"id-a"}) == ["a", "b"]
    assert others([mine("a"), host("b", 1)], {"id-a"}) is None
    assert others([mine("a"), host("b", 2)], {"id-a"}, may_grow=False) is None
    assert others([mine("a"), host("b", 2)], {"id-a"}, nodes=1) is None
    assert others([mine("a"), host("b", 2, draining=True)], {"id-a"}) is None
    assert others([mine("a", contact="no contact"), host("b", 2)], {"id-a"}) is None
    assert others([mine("a", draining=True), host("b", 2)], {"id-a"}, nodes=1, may_grow=False) == ["b"]
    assert others([mine("a", draining=True)], {"id-a"}) is None


def test_who_waits_with_less_priority_is_in_nobodys_way():
    known = [mine("a"), host("b", 2, [("old", 2, 90.0)])]
    queue = [want(1, devices=4, priority=-1)]
    assert others(known, {"id-a"}, queue=queue) == ["a", "b"]
    assert others(known, {"id-a"}, queue=[want(1, devices=4)]) is None


@settings(max_examples=2 * settings.default.max_examples)
@given(queues(), hosts(is_plain=True), st.integers(2, 4), st.integers(0, 9))
def test_growing_run_delays_no_run_of_its_priority(queue, nodes, most, turn):
    """Neither the first in line nor whoever could start now."""
    known = [mine("m"), *nodes]
    run = want(99, nodes=most, devices=2, fewest_nodes=1, run_id="mine", created_at=float(turn))
    offered = elastic.other_nodes(run, {"id-m"}, known, queue, 0.0, may_grow=True)
    if offered is None:
        return
    grown = [replace(h, free=h.free[2:], allocations=(*h.allocations, Allocation("mine", h.free[:2], None)))
             if h.node_id in offered and h.node_id != "id-m" else h for h in known]  # fmt: skip
    rivals = [w for w in queue if w.priority >= run.priority]
    before, after = place(rivals, known, 0.0), place(rivals, grown, 0.0)
    assert set(before.placed) == set(after.placed)
    if waiting := sorted((w for w in rivals if w.fence in before.waiting), key=place_turn):
        first = waiting[0].fence
        assert before.waiting[first].starts_at == after.waiting[first].starts_at
