"""Sweeps in the store: trials with their runs, the metric of each, and results that outlive their runs."""

from __future__ import annotations

import pytest

from db.engine import Store
from db.exceptions import NoSuchStudy, WrongState
from db.runs import deletion, run_queries, run_requests
from db.runs.run_requests import NewTrial
from db.studies import studies, trials
from db.studies.trials import Result
from domain.messages import State
from domain.spec import RunSpec
from domain.studies import PRUNED
from domain.sweeps import SweepPlan
from tests.db.cluster import Cluster

SPEC = RunSpec(target="image_classifier", gpus_per_node=1)
PLAN = SweepPlan.model_validate({"parameters": {"lr": {"values": [0.1, 0.2]}}, "metric": "val/loss"})


def launch_trial(store: Store, sweep_id: str, number: int) -> str:
    return run_requests.submit(store, SPEC, 101.0, part_of=NewTrial(sweep_id, number, {"lr": 0.1}))


def test_a_sweep_holds_its_trials_and_ends(store: Store, cluster: Cluster) -> None:
    sweep_id = studies.create(store, SPEC, PLAN, 100.0)
    first, second = launch_trial(store, sweep_id, 0), launch_trial(store, sweep_id, 1)
    trials.add_unlaunched(store, NewTrial(sweep_id, 2, {"lr": 0.3}), "It could not be launched: no room.")
    view = studies.study(store, sweep_id, SweepPlan)
    assert (view.plan, view.spec) == (PLAN, SPEC)
    assert [(trial.run_id, trial.run_state, trial.state) for trial in view.trials] == [
        (first, State.QUEUED, None),
        (second, State.QUEUED, None),
        (None, None, "failed"),
    ]
    run_requests.request_stop(store, first, 102.0)
    trials.settle(store, sweep_id, 0, Result("stopped", 0.25, None, 1.5))
    deletion.erase(store, first, 103.0)
    settled = studies.study(store, sweep_id, SweepPlan).trials[0]
    assert (settled.run_id, settled.state, settled.value, settled.device_hours) == (
        None,
        "stopped",
        0.25,
        1.5,
    )
    studies.request_stop(store, sweep_id, 104.0)
    studies.request_stop(store, sweep_id, 105.0)
    assert [study.id for study in studies.live(store)] == [sweep_id]
    studies.end(store, sweep_id, 106.0, "enough")
    ended = studies.study(store, sweep_id, SweepPlan)
    assert (ended.stop_requested_at, ended.ended_at, ended.message) == (104.0, 106.0, "enough")
    assert studies.live(store) == []
    for unknown in ("aaaaaaaaaa", "..", ""):
        with pytest.raises(NoSuchStudy):
            studies.study(store, unknown, SweepPlan)


def test_the_metric_is_the_script_s_own_else_what_it_printed(store: Store, cluster: Cluster) -> None:
    sweep_id = studies.create(store, SPEC, PLAN, 100.0)
    run_id = launch_trial(store, sweep_id, 0)
    assert cluster.place() == [run_id]
    (assignment,) = cluster.assignments()
    logged = (
        ("printed", "val/loss", 0.7),
        ("events", "train/val/loss", 0.1),
        ("events", "val/loss", 0.5),
        ("events", "loss", 0.2),
    )
    for number, (source, tag, value) in enumerate(logged):
        points = {tag: [(1, 9.0, 1.0), (4, value, 2.0)]}
        cluster.points(assignment.fence, 9 * number, 9 * number + 9, points, source=source)
        trial = studies.study(store, sweep_id, SweepPlan).trials[0]
        assert (trial.last_step, trial.last_value) == (4, 0.7 if value in (0.7, 0.1) else 0.5)


def test_a_pruned_trial_is_promoted_to_the_next_attempt_of_its_run(store: Store, cluster: Cluster) -> None:
    sweep_id = studies.create(store, SPEC, PLAN, 100.0)
    run_id = launch_trial(store, sweep_id, 0)
    cluster.place()
    (fence,) = [assignment.fence for assignment in cluster.assignments()]
    trials.record_rungs(store, sweep_id, 0, [0.5, None])
    trials.pass_rung(store, sweep_id, 0)
    trials.prune(store, sweep_id, 0, 300, "pruned at rung 2")
    run_requests.request_stop(store, run_id, 110.0, "pruned at rung 2")
    (pruned,) = studies.study(store, sweep_id, SweepPlan).trials
    assert (pruned.rung, pruned.rung_values, pruned.pruned_at) == (1, (0.5, None), 300)
    assert (pruned.message, pruned.is_stopping, pruned.state) == ("pruned at rung 2", True, None)
    with pytest.raises(WrongState):
        trials.promote(store, sweep_id, 0, 111.0)
    assert studies.study(store, sweep_id, SweepPlan).trials == [pruned]
    cluster.report(fence, "stopped")
    trials.settle(store, sweep_id, 0, Result(PRUNED, 0.5, "pruned at rung 2", 0.1))
    trials.promote(store, sweep_id, 0, 113.0)
    (promoted,) = studies.study(store, sweep_id, SweepPlan).trials
    assert (promoted.rung, promoted.rung_values, promoted.pruned_at) == (2, (0.5, None), None)
    assert (promoted.state, promoted.value, promoted.message, promoted.device_hours) == (None,) * 4
    assert promoted.run_state == State.QUEUED
    texts = [line.text for line in run_queries.history(store, run_id)]
    assert "stop requested: pruned at rung 2" in texts
    assert texts[-1].startswith("promoted at rung 2 of its sweep; from the beginning")
    trials.prune(store, sweep_id, 0, 900, "pruned at rung 3")
    trials.settle(store, sweep_id, 0, Result("succeeded", 0.4, None, 0.2))
    assert studies.study(store, sweep_id, SweepPlan).trials[0].pruned_at is None
    halving = studies.create(store, SPEC, PLAN.model_copy(update={"early_stop": "asha"}), 100.0)
    studies.complete_plan(store, halving, first_rung=7)
    assert studies.study(store, halving, SweepPlan).plan.first_rung == 7


def test_a_trial_s_best_value_is_the_one_that_a_comparison_takes(store: Store, cluster: Cluster) -> None:
    sweep_id = studies.create(store, SPEC, PLAN, 100.0)
    launch_trial(store, sweep_id, 0)
    cluster.place()
    (assignment,) = cluster.assignments()
    cluster.points(assignment.fence, 0, 9, {"val/loss": [(1, 0.9, 1.0), (2, 0.2, 2.0), (3, 0.4, 3.0)]})
    (trial,) = studies.study(store, sweep_id, SweepPlan).trials
    assert (trial.last_value, trial.best_value("min"), trial.best_value("max")) == (0.4, 0.2, 0.9)
