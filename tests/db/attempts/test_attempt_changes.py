"""What marks a later attempt's beginning on a run's curves."""

from __future__ import annotations

from db.attempts.attempt_queries import marks
from db.runs import run_queries
from domain.spec import RunSpec
from tests.db.attempts.test_restarts import fail


def test_only_what_is_different_from_the_attempt_before_is_said():
    spec = RunSpec(target="image_classifier", nodes=2, batch_size=8, lr=0.1)
    fewer = {"nodes": 1, "accumulate": 2}
    changes = marks(spec, [(1, None), (2, fewer), (3, fewer | {"lr": 0.05}), (4, None)])
    assert [(mark.attempt, mark.text) for mark in changes] == [
        (2, "attempt 2: 1 node, accumulation 2"),
        (3, "attempt 3: lr 0.05"),
        (4, "attempt 4: 2 nodes, accumulation 1, lr 0.1"),
    ]


def test_a_run_says_where_its_later_attempts_take_over(cluster):
    run_id = cluster.launch(max_restarts=1)
    assert run_queries.run(cluster.store, run_id, cluster.now).attempt_changes == []
    fail(cluster, steps=3)
    (mark,) = run_queries.run(cluster.store, run_id, cluster.now).attempt_changes
    assert (mark.attempt, mark.text) == (2, "attempt 2")
