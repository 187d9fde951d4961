"""A run's life: what people wish, what workers report, and what follows from it."""

from __future__ import annotations

import math

import pytest

from db.checkpoints import checkpoint_queries
from db.exceptions import NoSuchRun, NotOwner, Superseded, WrongState
from db.metrics import curves, point_reports
from db.nodes import node_queries, node_reports
from db.runs import deletion, run_queries, run_requests
from domain.messages import State
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec
from tests.db import task_streams
from tests.db.attempts.offers import store_checkpoint, view
from tests.db.cluster import Cluster, facts

pytestmark = pytest.mark.both_stores


def test_a_run_goes_from_queued_to_succeeded(cluster):
    run_id = run_requests.submit(cluster.store, RunSpec(target="image_classifier", gpus_per_node=2), 100.0)
    assert view(cluster, run_id).state == State.QUEUED
    cluster.place()
    assert view(cluster, run_id).state == State.STARTING
    (assignment,) = cluster.assignments()
    assert (assignment.action, assignment.devices, assignment.attempt) == ("run", ["cpu:0", "cpu:1"], 1)
    for state in ("starting", "running"):
        cluster.report(assignment.fence, state)
        assert view(cluster, run_id).state == state
    cluster.report(assignment.fence, "succeeded", exit_code=0)
    assert view(cluster, run_id).state == State.SUCCEEDED
    assert cluster.assignments() == []


def test_a_second_run_waits_and_is_told_for_what(cluster):
    cluster.launch(gpus_per_node=2)
    second = cluster.launch(gpus_per_node=1)
    waiting = view(cluster, second)
    assert waiting.state == State.QUEUED
    assert waiting.waiting_for == "needs 1 slot, none is free; image_classifier on gpu-1 does not say when it ends"
    assert waiting.expected_start_at is None


def test_more_than_the_known_nodes_offer_is_refused(cluster):
    with pytest.raises(InvalidRequest, match="needs 4 nodes with 2 slots each, but 1 node is registered") as refused:
        cluster.launch(nodes=4, gpus_per_node=2)
    assert refused.value.field == "nodes"
    with pytest.raises(InvalidRequest) as refused:
        cluster.launch(gpus_per_node=8)
    assert refused.value.field == "gpus_per_node"
    assert cluster.launch(gpus_per_node=8, wait_for_nodes=True)


def test_stop_is_desired_until_the_worker_reports_the_end(cluster):
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    run_requests.request_stop(cluster.store, run_id, 101.0)
    run_requests.request_stop(cluster.store, run_id, 105.0)
    assert view(cluster, run_id).state == State.RUNNING
    assert view(cluster, run_id).stop_requested_at == 101.0
    assert cluster.assignments()[0].action == "stop"
    cluster.report(assignment.fence, "stopping")
    cluster.report(assignment.fence, "stopped")
    assert view(cluster, run_id).state == State.STOPPED


def test_a_queued_run_stops_at_once(cluster):
    cluster.launch(gpus_per_node=2)
    second = cluster.launch(gpus_per_node=2)
    run_requests.request_stop(cluster.store, second, 101.0)
    assert view(cluster, second).state == State.STOPPED


def test_a_terminal_attempt_never_changes(cluster):
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "failed", message="rank 1 raised")
    assert cluster.report(assignment.fence, "failed") == State.FAILED
    with pytest.raises(Superseded):
        cluster.report(assignment.fence, "succeeded")
    with pytest.raises(Superseded):
        cluster.report(assignment.fence, "running")
    assert view(cluster, run_id).message == "rank 1 raised"


def test_another_nodes_part_cannot_be_reported(cluster):
    cluster.launch()
    other = node_reports.register_node(cluster.store, facts("other"), None, 100.0)
    fence = cluster.assignments()[0].fence
    with pytest.raises(NotOwner):
        task_streams.file_for_append(cluster.store, other.node_id, fence, 0, "logs/rank0.out", 0)


def test_points_are_stored_once_whatever_is_repeated(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    first = {"train/loss": [(1, 2.5, 10.0), (2, math.nan, 11.0)]}
    assert cluster.points(fence, 0, 50, first).stored
    again = cluster.points(fence, 0, 50, first)
    assert (again.stored, again.offset) == (False, 50)
    assert not cluster.points(fence, 80, 90, first).stored
    assert cluster.points(fence, 50, 80, {"train/loss": [(3, math.inf, 12.0)]}).stored
    curve = curves.series(cluster.store, run_id)["train/loss"]
    assert [p[0] for p in curve.points] == [1, 2, 3]
    assert math.isnan(curve.points[1][1])
    assert curve.not_finite_since == 3  # NaN before, infinite since
    assert view(cluster, run_id).last_loss == math.inf
    assert view(cluster, run_id).loss_not_finite_since == 3


def test_a_resumed_run_shows_the_new_attempts_points_from_its_first_step_on(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.points(fence, 0, 9, {"train/loss": [(s, 1.0, float(s)) for s in range(1, 8)]})
    checkpoint = store_checkpoint(cluster, fence, step=5)
    cluster.report(fence, "failed", message="killed")
    assert run_requests.resume(cluster.store, run_id, 200.0) == 2
    cluster.place()
    (assignment,) = cluster.assignments()
    assert assignment.resume_from.checkpoint_id == checkpoint
    assert assignment.fence > fence
    cluster.points(assignment.fence, 0, 9, {"train/loss": [(6, 2.0, 106.0), (7, 2.0, 107.0)]})
    curve = curves.series(cluster.store, run_id)["train/loss"]
    assert [(p[0], p[1]) for p in curve.points] == [(s, 1.0) for s in range(1, 6)] + [(6, 2.0), (7, 2.0)]
    whole = curves.series(cluster.store, run_id, whole=True)["train/loss"]
    assert len(whole.points) == 9
    assert [s.attempt for s in whole.segments] == [1, 2]
    alone = curves.series(cluster.store, run_id, attempt=2)["train/loss"]
    assert [p[0] for p in alone.points] == [6, 7]


def test_a_new_attempt_has_figures_of_its_own_from_the_first_moment(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.points(fence, 0, 9, {"train/loss": [(7, math.nan, 7.0)], "train/total_steps": [(1, 20.0, 1.0)]})
    cluster.points(fence, 0, 5, {"samples_per_s": [(7, 99.0, 1.0)]}, source="probe")
    cluster.report(fence, "failed", message="killed")
    run_requests.resume(cluster.store, run_id, 200.0)
    shown = view(cluster, run_id)
    assert (shown.attempt, shown.state, shown.message) == (2, "queued", None)
    assert (shown.step, shown.last_loss, shown.throughput, shown.loss_not_finite_since) == (None,) * 4
    assert not shown.progress


def test_only_an_ended_run_is_resumed_or_deleted(cluster):
    run_id = cluster.launch()
    with pytest.raises(WrongState):
        run_requests.resume(cluster.store, run_id, 1.0)
    with pytest.raises(WrongState):
        deletion.erase(cluster.store, run_id, cluster.now)
    cluster.report(cluster.assignments()[0].fence, "succeeded")
    deletion.erase(cluster.store, run_id, cluster.now)
    with pytest.raises(NoSuchRun):
        run_requests.resume(cluster.store, run_id, 1.0)


def test_a_fence_is_never_given_twice_even_after_a_delete(cluster):
    first = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "succeeded")
    deletion.erase(cluster.store, first, cluster.now)
    cluster.launch()
    assert cluster.assignments()[0].fence > fence


def test_when_one_part_fails_the_others_are_told_to_stop(store):
    ids = [node_reports.register_node(store, facts(n), None, 100.0).node_id for n in ("a", "b")]
    first, second = (Cluster(store, node_id) for node_id in ids)
    run_id = first.launch(nodes=2, gpus_per_node=2)
    fence = first.assignments()[0].fence
    first.report(fence, "starting", 0, master_addr="10.0.0.1", master_port=4567)
    assert second.assignments()[0].master_port == 4567
    first.report(fence, "running", 0)
    assert view(first, run_id).state == State.STARTING
    second.report(fence, "running", 1)
    assert view(first, run_id).state == State.RUNNING
    second.report(fence, "failed", 1, message="rank 3 on b was killed", error={"rank": 3, "at": 5.0})
    assert first.assignments()[0].action == "stop"
    assert view(first, run_id).state == State.STOPPING
    first.report(fence, "failed", 0, message="rank 0 on a: connection closed", error={"rank": 0, "at": 6.0})
    assert view(first, run_id).message == "rank 3 on b was killed"


def test_the_others_are_told_of_another_port_and_the_history_says_why(store):
    ids = [node_reports.register_node(store, facts(n), None, 100.0).node_id for n in ("a", "b")]
    first, second = (Cluster(store, node_id) for node_id in ids)
    run_id = first.launch(nodes=2, gpus_per_node=2)
    fence = first.assignments()[0].fence
    for port in (4567, 4567, 4568):
        first.report(fence, "starting", 0, master_addr="10.0.0.1", master_port=port)
    assert second.assignments()[0].master_port == 4568
    second.report(fence, "starting", 1, master_addr="10.0.0.2", master_port=1)  # not for it to say
    assert second.assignments()[0].master_port == 4568
    port_lines = [entry.text for entry in run_queries.history(store, run_id) if "port" in entry.text]
    assert port_lines == ["port 4567 was taken by another program: rendezvous at port 4568"]


def test_a_node_whose_ranks_only_lost_their_peers_does_not_explain_the_end(store):
    """torchrun tells whole seconds, and clocks differ: the earlier time may be the victim's."""
    ids = [node_reports.register_node(store, facts(n), None, 100.0).node_id for n in ("a", "b")]
    first, second = (Cluster(store, node_id) for node_id in ids)
    run_id = first.launch(nodes=2, gpus_per_node=2)
    fence = first.assignments()[0].fence
    first.report(fence, "starting", 0, master_addr="10.0.0.1", master_port=4567)
    second.assignments()
    lost = {"rank": 0, "at": 4.0, "is_consequence": True}
    first.report(fence, "failed", 0, message="rank 0 on a: connection closed", error=lost, next_step="Look.")
    cause = {"rank": 3, "at": 5.0}
    second.report(fence, "failed", 1, message="rank 3 on b: KeyError", error=cause, next_step="Mend it.")
    shown = view(first, run_id)
    assert (shown.message, shown.next_step) == ("rank 3 on b: KeyError", "Mend it.")


def test_the_run_list_searches_plain_text(cluster):
    run_id = cluster.launch(name="100%_sure (a+)+$")
    cluster.launch(name="other")

    def find(text):
        return [r.id for r in run_queries.runs(cluster.store, 1.0, text=text)]

    assert find("100%_") == [run_id]
    assert find("%") == [run_id]
    assert find("(a+)+$") == [run_id]
    assert find("' OR 1=1--") == []


def test_a_silent_node_is_lost_contact_and_not_a_state(cluster):
    run_id = cluster.launch()
    cluster.report(cluster.assignments()[0].fence, "running")
    cluster.now += 15
    assert view(cluster, run_id).lost_contact
    assert view(cluster, run_id).state == State.RUNNING
    assert node_queries.nodes(cluster.store, cluster.now)[0].state == "no contact"
    assert node_queries.nodes(cluster.store, cluster.now + 30)[0].state == "lost"


def test_progress_throughput_and_time_left_follow_from_the_series(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    cluster.points(fence, 0, 5, {"train/total_steps": [(0, 100.0, 0.0)]})
    cluster.points(
        fence,
        5,
        9,
        {"train/loss": [(0, 3.0, 0.0), (50, 1.0, 25.0)], "train/samples_per_s": [(50, 64.0, 25.0)]},
    )
    run = view(cluster, run_id)
    assert (run.step, run.total_steps, run.progress) == (50, 100, 0.5)
    assert (run.last_loss, run.throughput, run.eta_s) == (1.0, 64.0, 25.0)


def test_a_script_that_says_nothing_has_the_steps_and_speed_that_the_probe_saw(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    cluster.points(fence, 0, 5, {"samples_per_s": [(7, 99.0, 1.0)]}, source="probe")
    assert (view(cluster, run_id).step, view(cluster, run_id).throughput) == (7, 99.0)
    cluster.points(fence, 5, 9, {"train/loss": [(3, 1.0, 1.0)], "samples_per_s": [(3, 64.0, 1.0)]})
    assert (view(cluster, run_id).step, view(cluster, run_id).throughput) == (3, 64.0)


def test_names_of_series_are_capped_with_a_line_in_the_history(cluster, monkeypatch):
    monkeypatch.setattr(point_reports, "MAX_SERIES", 5)
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.points(fence, 0, 5, {f"m{i}": [(0, 1.0, 0.0)] for i in range(9)})
    assert len(curves.series_names(cluster.store, run_id)) == 5
    assert any("more than 5 series" in line.text for line in run_queries.history(cluster.store, run_id))


def test_a_validation_loss_is_never_compared_with_a_training_loss(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.points(fence, 0, 5, {"val/loss": [(10, 0.5, 0.0)], "train/loss": [(10, 0.4, 0.0), (20, 0.1, 0.0)]})
    store_checkpoint(cluster, fence, path="a", step=10, sha="b" * 64)
    store_checkpoint(cluster, fence, path="b", step=20, sha="c" * 64)
    by_name = {c.name: c for c in checkpoint_queries.checkpoints(cluster.store, run_id)}
    assert (by_name["a"].loss_name, by_name["a"].best) == ("val/loss", True)
    assert (by_name["b"].loss_name, by_name["b"].best) == ("train/loss", False)


def test_a_script_that_only_prints_has_figures_too_until_it_logs(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.points(fence, 0, 5, {"loss": [(7, 3.0, 0.0)]}, source="printed")
    assert (view(cluster, run_id).step, view(cluster, run_id).last_loss) == (7, 3.0)
    cluster.points(fence, 5, 9, {"train/loss": [(8, 2.0, 0.0)]})
    assert (view(cluster, run_id).step, view(cluster, run_id).last_loss) == (8, 2.0)


def test_printed_epoch_and_rate_fill_in_what_is_not_logged(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    said = {"epoch": [(411, 1.0, 0.0)], "lr": [(411, 0.1, 0.0)], "loss": [(411, 2.0, 0.0)]}
    cluster.points(fence, 0, 5, said, source="printed")
    shown = view(cluster, run_id)
    assert (shown.epoch, shown.last_lr, shown.last_loss) == (1.0, 0.1, 2.0)
    assert shown.inferred == ["epoch", "last_loss", "last_lr"]
    cluster.points(fence, 5, 9, {"train/loss": [(9, 1.5, 0.0)]})
    shown = view(cluster, run_id)
    assert (shown.step, shown.last_loss, shown.epoch, shown.last_lr) == (9, 1.5, 1.0, 0.1)
    assert shown.inferred == ["epoch", "last_lr"]
    cluster.points(fence, 9, 12, {"lr": [(10, 0.2, 0.0)], "train/epoch": [(10, 3.0, 0.0)]})
    shown = view(cluster, run_id)
    assert (shown.epoch, shown.last_lr, shown.inferred) == (3.0, 0.2, [])
