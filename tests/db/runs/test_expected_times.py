"""The time of a launch is read from earlier runs that succeeded at once and that the actor sees."""

from __future__ import annotations

import pytest

from db import acting
from db.people import projects
from db.runs import run_queries
from db.runs.expected_times import expected_time
from domain.people.rights import Rights, rights_of_owner
from domain.people.roles import Role
from domain.spec import RunSpec
from tests.db.cluster import Cluster

pytestmark = pytest.mark.both_stores
SPEC = RunSpec(target="image_classifier", gpus_per_node=2, batch_size=8, lr=0.1, max_steps=100)


def train(cluster: Cluster, seconds: float, state: str = "succeeded", **spec: object) -> str:
    run_id = cluster.launch(**SPEC.model_dump(exclude_unset=True) | spec)
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    cluster.now += seconds
    cluster.report(assignment.fence, state)
    return run_id


def test_newest_runs_that_succeeded_tell(cluster: Cluster) -> None:
    assert expected_time(cluster.store, SPEC) is None
    train(cluster, 9000.0)
    runs = [train(cluster, seconds) for seconds in (720.0, 840.0, 780.0)]
    train(cluster, 1.0, "failed")
    expected = expected_time(cluster.store, SPEC)
    assert expected is not None
    assert expected.like == runs[::-1]
    assert expected.sentence == "Like its last three runs: 12 to 14 min."
    assert run_queries.run(cluster.store, runs[0], cluster.now) is not None


def test_hidden_runs_tell_nothing(cluster: Cluster) -> None:
    train(cluster, 720.0, project="moonshot")
    with acting.acting(rights_of_owner()):
        projects.set_privacy(cluster.store, "moonshot", True, cluster.now)
    with acting.acting(Rights("ana", everywhere=Role.MEMBER, private=frozenset({"moonshot"}))):
        assert expected_time(cluster.store, SPEC) is None
    assert expected_time(cluster.store, SPEC) is not None
