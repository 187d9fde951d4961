"""A deleted run exists for nobody, can be brought back, and goes for good with all its rows once it is due."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from db import acting
from db.attempts import attempt_queries
from db.checkpoints import checkpoint_reports
from db.exceptions import NoSuchRun, WrongState
from db.models import Attempt, Checkpoint, CheckpointTask, Run
from db.runs import deletion, run_list, run_queries, run_requests
from db.runs.run_list import RunSelection
from domain.messages import CheckpointOffer
from domain.people.rights import Rights, rights_of_owner
from domain.people.roles import Role
from domain.spec import RunEdit
from tests.db.cluster import Cluster

pytestmark = pytest.mark.both_stores


def ended(cluster: Cluster, **spec: object) -> str:
    run_id = cluster.launch(**spec)
    cluster.report(cluster.assignments()[0].fence, "succeeded")
    return run_id


def listed(cluster: Cluster) -> list[str]:
    runs = run_list.listed(cluster.store, cluster.now, RunSelection(), None, 10)
    return [run.id for run in runs]


def test_a_deleted_run_is_nowhere_until_it_is_brought_back(cluster):
    run_id = ended(cluster)
    run_requests.edit(cluster.store, run_id, RunEdit(baseline=True, name="good"), cluster.now)
    before = run_queries.run(cluster.store, run_id, cluster.now)
    with acting.acting(rights_of_owner()):
        deletion.delete(cluster.store, run_id, 200.0)
    assert listed(cluster) == [] and run_queries.run(cluster.store, run_id, cluster.now) is None
    assert run_queries.named_runs(cluster.store, "good") == [] == run_list.projects(cluster.store)
    assert run_queries.common_baseline(cluster.store, [run_id]) is None
    with pytest.raises(NoSuchRun):
        run_queries.name_and_state(cluster.store, run_id)
    with pytest.raises(NoSuchRun):
        deletion.delete(cluster.store, run_id, 201.0)
    (gone,) = deletion.deleted_runs(cluster.store)
    assert (gone.id, gone.name, gone.deleted_at, gone.deleted_by) == (run_id, "good", 200.0, "owner")
    deletion.restore(cluster.store, run_id, 300.0)
    assert listed(cluster) == [run_id] and run_queries.run(cluster.store, run_id, cluster.now) == before
    lines = [(line.text, line.by) for line in run_queries.history(cluster.store, run_id)]
    assert lines[-2:] == [("deleted", "owner"), ("restored after its deletion", None)]
    with pytest.raises(NoSuchRun):
        deletion.restore(cluster.store, run_id, 301.0)


def test_only_an_ended_run_is_deleted(cluster):
    run_id = cluster.launch()
    with pytest.raises(WrongState):
        deletion.delete(cluster.store, run_id, 200.0)
    assert listed(cluster) == [run_id]


def test_a_project_that_got_another_baseline_keeps_it(cluster):
    first, second = ended(cluster), ended(cluster)
    run_requests.edit(cluster.store, first, RunEdit(baseline=True), cluster.now)
    deletion.delete(cluster.store, first, 200.0)
    run_requests.edit(cluster.store, second, RunEdit(baseline=True), cluster.now)
    deletion.restore(cluster.store, first, 300.0)
    assert run_queries.common_baseline(cluster.store, [first]) == second


def test_what_trains_for_a_deleted_run_is_ended_and_never_placed_or_restarted(cluster):
    running, queued = cluster.launch(max_restarts=3), cluster.launch()
    (task,) = cluster.assignments()
    with cluster.store.write() as session:  # as older versions could leave it
        session.execute(update(Run).values(deleted_at=200.0))
    assert cluster.assignments()[0].action == "stop"
    assert sorted(deletion.end_deleted(cluster.store, 201.0)) == sorted([running, queued])
    assert deletion.end_deleted(cluster.store, 202.0) == []
    assert deletion.erase_due(cluster.store, 210.0, 210.0).run_id == queued, "the other has not ended"
    assert cluster.report(task.fence, "stopped") == "stopped"
    assert cluster.assignments() == [] and deletion.erase_due(cluster.store, 210.0, 210.0).run_id == running


def test_a_deleted_run_that_fails_before_its_stop_is_not_restarted(cluster):
    run_id = cluster.launch(max_restarts=3)
    (task,) = cluster.assignments()
    with cluster.store.write() as session:
        session.execute(update(Run).values(deleted_at=200.0))
    cluster.report(task.fence, "failed")
    assert [attempt.number for attempt in attempt_queries.attempts(cluster.store, run_id)] == [1]


def test_a_run_is_not_erased_while_another_is_about_to_start_from_its_checkpoint(cluster):
    run_id = cluster.launch()
    (task,) = cluster.assignments()
    offer = CheckpointOffer(path="last.pt", step=1, size_bytes=1, sha256="ab" * 32, written_at=1.0)
    stored = checkpoint_reports.offered(cluster.store, cluster.node_id, task.fence, 0, offer, 1.0)
    checkpoint_reports.completed(cluster.store, stored.id, 1.0)
    cluster.report(task.fence, "succeeded")
    cluster.launch(resume=run_id)
    with pytest.raises(WrongState, match="about to start"):
        deletion.erase(cluster.store, run_id, 200.0)
    deletion.delete(cluster.store, run_id, 200.0)
    assert deletion.erase_due(cluster.store, 210.0, 210.0) is None
    cluster.report(cluster.assignments()[0].fence, "running")
    assert deletion.erase_due(cluster.store, 210.0, 210.0).run_id == run_id


def test_a_diff_with_a_checkpoint_of_an_erased_run_goes_with_it(cluster):
    kept, erased = ended(cluster), ended(cluster)
    with cluster.store.write() as session:
        for run_id in (kept, erased):
            fence = session.scalars(select(Attempt.fence).where(Attempt.run_id == run_id)).one()
            file = {"path": "a.pt", "size_bytes": 1, "sha256": "a" * 64, "written_at": 1.0, "created_at": 1.0}
            session.add(Checkpoint(fence=fence, node_rank=0, received_bytes=1, complete=True, **file))
        first, second = session.scalars(select(Checkpoint.id).order_by(Checkpoint.fence)).all()
        work = {"kind": "diff", "options": {}, "node_id": cluster.node_id, "asked_at": 1.0}
        session.add_all(CheckpointTask(checkpoint_id=first, other_id=other, **work) for other in (first, second))
    deletion.erase(cluster.store, erased, 200.0)
    with cluster.store.read() as session:
        assert session.scalars(select(CheckpointTask.other_id)).all() == [first]


def test_the_first_deletion_is_due_first_and_erased_whole(cluster):
    first, second = ended(cluster), ended(cluster)
    deletion.delete(cluster.store, second, 200.0)
    deletion.delete(cluster.store, first, 210.0)
    assert deletion.erase_due(cluster.store, 199.0, 300.0) is None
    erased = [deletion.erase_due(cluster.store, 210.0, 300.0) for _ in range(3)]
    assert [one and one.run_id for one in erased] == [second, first, None]
    with pytest.raises(NoSuchRun):
        deletion.restore(cluster.store, second, 300.0)


def test_only_the_deleted_runs_of_ones_own_projects_are_listed(cluster):
    runs = [ended(cluster, project=project) for project in ("vision", "speech")]
    for run_id in runs:
        deletion.delete(cluster.store, run_id, 200.0)
    ana = Rights("ana", everywhere=Role.VIEWER, in_projects={"vision": Role.MEMBER})
    with acting.acting(ana):
        assert [run.id for run in deletion.deleted_runs(cluster.store)] == [runs[0]]
