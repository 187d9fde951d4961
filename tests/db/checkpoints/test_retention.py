"""Retention rules in the store: whose holds, what they delete, and what nothing deletes."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from db import acting
from db.checkpoints import (
    checkpoint_queries,
    checkpoint_reports,
    deleted_checkpoints,
    retention,
    retention_rules,
)
from db.exceptions import NoSuchRun, WrongState
from db.models import Attempt, AuditEntry, Checkpoint, CheckpointTask
from db.runs import deletion, run_queries, run_requests, shared_links
from domain.messages import Delivery
from domain.people.rights import Denied, Rights
from domain.people.roles import Role
from domain.requests.errors import InvalidRequest
from tests.db.attempts.offers import offer, store_checkpoint
from tests.db.statements import statements


def save(cluster, fence, *steps, size=3) -> dict[int, int]:
    """Store a checkpoint for each step, a minute apart; return their ids by step."""
    ids = {}
    for step in steps:
        given = offer(f"work/step_{step}.pt", step, f"{step:064}")
        given = given.model_copy(update={"written_at": 60.0 * step, "size_bytes": size})
        row = checkpoint_reports.offered(cluster.store, cluster.node_id, fence, 0, given, cluster.now)
        checkpoint_reports.completed(cluster.store, row.id, cluster.now)
        ids[step] = row.id
    return ids


@pytest.fixture
def trained(cluster):
    """A run that trains, and has saved five checkpoints."""
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    return run_id, fence, save(cluster, fence, 10, 20, 30, 40, 50)


def steps_of(cluster, run_id) -> list[int]:
    return sorted(view.step for view in checkpoint_queries.checkpoints(cluster.store, run_id))


def apply(cluster, run_id, rule="last 1") -> list[int]:
    retention_rules.set_for_run(cluster.store, run_id, rule, cluster.now)
    retention.apply(cluster.store, run_id, cluster.now)
    return steps_of(cluster, run_id)


@pytest.mark.both_stores
def test_a_rule_deletes_what_it_does_not_keep(cluster, trained):
    run_id, _, ids = trained
    assert apply(cluster, run_id, "last 2") == [40, 50]
    deleted = checkpoint_queries.deleted_checkpoints(cluster.store, run_id)
    assert {view.id for view in deleted} == {ids[10], ids[20], ids[30]}
    assert {view.deleted_why for view in deleted} == {"last 2, pinned"}
    assert retention.apply(cluster.store, run_id, cluster.now) == []
    history = "".join(line.text for line in run_queries.history(cluster.store, run_id))
    assert "3 checkpoints deleted by the rule 'last 2, pinned'" in history


def test_without_a_rule_all_are_kept(cluster, trained):
    run_id, _, _ = trained
    assert retention.apply(cluster.store, run_id, cluster.now) == []
    assert retention_rules.ruled_runs(cluster.store) == []
    assert retention_rules.of_run(cluster.store, run_id).rule == "keep all"


def test_a_runs_rule_overrides_that_of_its_project(cluster, trained):
    run_id, _, _ = trained
    retention_rules.set_for_project(cluster.store, "default", "last 3", cluster.now)
    assert retention_rules.of_run(cluster.store, run_id).rule == "last 3, pinned"
    assert retention_rules.ruled_runs(cluster.store) == [run_id]
    retention_rules.set_for_run(cluster.store, run_id, "keep all", cluster.now)
    assert retention_rules.of_run(cluster.store, run_id).of == "run"
    assert retention.apply(cluster.store, run_id, cluster.now) == []
    retention_rules.set_for_run(cluster.store, run_id, None, cluster.now)
    retention.apply(cluster.store, run_id, cluster.now)
    assert steps_of(cluster, run_id) == [30, 40, 50]


def test_a_wrong_rule_is_not_stored(cluster, trained):
    with pytest.raises(InvalidRequest, match="is no part of a rule"):
        retention_rules.set_for_project(cluster.store, "default", "newest 2", cluster.now)
    assert retention_rules.of_project(cluster.store, "default").of is None


def test_a_rule_of_a_later_version_keeps_all(cluster, trained):
    run_id, _, _ = trained
    retention_rules.set_for_run(cluster.store, run_id, "last 1", cluster.now)
    with cluster.store.write() as session:
        retention_rules._row(session, run_id=run_id).rule = "every full moon"
    assert retention.apply(cluster.store, run_id, cluster.now) == []


def test_the_best_by_a_metric_stays(cluster, trained):
    run_id, fence, _ = trained
    cluster.points(fence, 0, 5, {"val/loss": [(10, 0.5, 0.0), (20, 0.1, 0.0), (30, 0.7, 0.0), (50, 0.9, 0.0)]})
    assert apply(cluster, run_id, "last 1, best 1 by val/loss") == [20, 50]


def test_what_earlier_lives_of_an_attempt_logged_counts(cluster, trained):
    run_id, fence, _ = trained
    first = {"val/loss": [(10, 0.5, 0.0), (20, 0.1, 1.0), (30, 0.05, 2.0), (40, 0.6, 3.0)]}
    cluster.points(fence, 0, 5, first, path="events.1")
    cluster.points(fence, 0, 5, {"val/loss": [(30, 0.7, 4.0), (50, 0.9, 5.0)]}, path="events.2")
    assert apply(cluster, run_id, "last 1, best 1 by val/loss") == [20, 50]


def test_a_checkpoint_whose_metric_may_still_come_stays_until_the_end(cluster, trained):
    run_id, fence, _ = trained
    cluster.points(fence, 0, 5, {"val/loss": [(10, 0.5, 0.0), (20, 0.1, 0.0)]})
    assert apply(cluster, run_id, "best 1 by val/loss") == [20, 30, 40, 50]
    cluster.report(fence, "succeeded")
    assert apply(cluster, run_id, "best 1 by val/loss") == [20, 50]


def test_a_checkpoint_whose_metric_its_node_still_sends_stays(cluster, trained):
    run_id, fence, _ = trained
    cluster.points(fence, 0, 5, {"val/loss": [(10, 0.5, 0.0), (20, 0.1, 0.0)]})
    left = Delivery(sent_bytes=1, total_bytes=2, seconds_left=1.0, has_points=True)
    cluster.report(fence, "succeeded", delivery=left)
    assert apply(cluster, run_id, "best 1 by val/loss") == [20, 30, 40, 50]
    cluster.report(fence, "succeeded")
    assert apply(cluster, run_id, "best 1 by val/loss") == [20, 50]


def test_pinned_ones_stay(cluster, trained):
    run_id, _, ids = trained
    deleted_checkpoints.pin(cluster.store, ids[20], cluster.now)
    assert apply(cluster, run_id) == [20, 50]
    deleted_checkpoints.pin(cluster.store, ids[20], cluster.now, is_pinned=False)
    assert apply(cluster, run_id) == [50]


def test_what_a_queued_resume_begins_with_stays(cluster, trained):
    run_id, fence, _ = trained
    cluster.report(fence, "stopped")
    run_requests.resume(cluster.store, run_id, 200.0, "step_20.pt")
    assert apply(cluster, run_id) == [20, 50]


def test_what_another_runs_latest_attempt_has_started_from_stays(cluster, trained):
    run_id, fence, _ = trained
    cluster.report(fence, "stopped")
    cluster.launch(resume=f"{run_id}:step_30.pt")
    cluster.report(cluster.assignments()[0].fence, "failed")
    assert apply(cluster, run_id) == [30, 50]


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_what_a_task_reads_stays_until_it_has_ended(cluster, trained, state):
    run_id, _, ids = trained
    with cluster.store.write() as session:
        session.add(
            CheckpointTask(
                kind="diff", checkpoint_id=ids[10], other_id=ids[30], options={}, node_id=cluster.node_id,
                asked_at=1.0, state=state,
            )
        )  # fmt: skip
    assert apply(cluster, run_id) == [10, 30, 50]
    with cluster.store.write() as session:
        session.scalars(select(CheckpointTask)).one().state = "succeeded"
    assert apply(cluster, run_id) == [50]


def test_what_a_shared_link_shows_as_the_best_stays_while_it_is_valid(cluster, trained):
    run_id, fence, _ = trained
    cluster.points(fence, 0, 5, {"val/loss": [(10, 0.1, 0.0), (20, 0.5, 0.0)]})
    link, _ = shared_links.make(cluster.store, [run_id], 1, cluster.now)
    assert apply(cluster, run_id) == [10, 50]
    shared_links.revoke(cluster.store, link.id, cluster.now)
    assert apply(cluster, run_id) == [50]


def test_files_of_several_ranks_that_are_unclear_stay(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    for step in (10, 20):
        for rank in (0, 1):
            store_checkpoint(
                cluster, fence, path=f"work/rank{rank}/step_{step}.pt", step=step, sha=f"{step + rank:064}"
            )
    assert apply(cluster, run_id) == [10, 10, 20, 20]


def test_a_pin_between_the_plan_and_the_deletion_counts(cluster, trained, monkeypatch):
    run_id, _, ids = trained
    retention_rules.set_for_run(cluster.store, run_id, "last 1", cluster.now)
    plan = retention.present_plan(cluster.store, run_id, cluster.now)
    monkeypatch.setattr(retention, "present_plan", lambda *_: plan)
    deleted_checkpoints.pin(cluster.store, ids[10], cluster.now)
    deleted_checkpoints.delete(cluster.store, ids[50], cluster.now)
    retention.apply(cluster.store, run_id, cluster.now)
    assert steps_of(cluster, run_id) == [10, 40]


def test_a_deleted_checkpoint_is_offered_for_nothing(cluster, trained):
    run_id, fence, ids = trained
    cluster.points(fence, 0, 5, {"val/loss": [(50, 0.1, 0.0), (40, 0.5, 0.0)]})
    deleted_checkpoints.delete(cluster.store, ids[50], cluster.now)
    listed = {view.step: view for view in checkpoint_queries.checkpoints(cluster.store, run_id)}
    assert 50 not in listed and listed[40].latest and listed[40].best
    cluster.report(fence, "stopped")
    with pytest.raises(InvalidRequest, match="it was deleted, and `rankzero checkpoint restore"):
        run_requests.resume(cluster.store, run_id, 200.0, "step_50.pt")
    run_requests.resume(cluster.store, run_id, 200.0)
    cluster.place()
    assert cluster.assignments()[0].resume_from.checkpoint_id == ids[40]


def test_a_deleted_checkpoint_that_its_node_offers_again_stays_deleted(cluster, trained):
    run_id, fence, ids = trained
    deleted_checkpoints.delete(cluster.store, ids[50], cluster.now)
    assert save(cluster, fence, 50)[50] == ids[50]
    assert steps_of(cluster, run_id) == [10, 20, 30, 40]


def test_a_restored_checkpoint_is_pinned(cluster, trained):
    run_id, _, ids = trained
    apply(cluster, run_id)
    deleted_checkpoints.restore(cluster.store, ids[20], cluster.now)
    assert apply(cluster, run_id) == [20, 50]


def test_what_is_in_use_or_pinned_no_person_deletes(cluster, trained):
    run_id, fence, ids = trained
    deleted_checkpoints.pin(cluster.store, ids[10], cluster.now)
    with pytest.raises(WrongState, match="unpin it first"):
        deleted_checkpoints.delete(cluster.store, ids[10], cluster.now)
    cluster.report(fence, "stopped")
    run_requests.resume(cluster.store, run_id, 200.0, "step_20.pt")
    with pytest.raises(WrongState, match="in use"):
        deleted_checkpoints.delete(cluster.store, ids[20], cluster.now)


@pytest.mark.both_stores
def test_erased_checkpoints_leave_rows_whose_ids_nothing_else_gets(cluster, trained):
    run_id, fence, ids = trained
    deleted_checkpoints.delete(cluster.store, ids[50], 100.0)
    assert deleted_checkpoints.erase_due(cluster.store, 99.0, 200.0).ids == []
    erasable = deleted_checkpoints.erase_due(cluster.store, 100.0, 200.0)
    assert (erasable.ids, erasable.freed_bytes) == ([ids[50]], 3)
    assert deleted_checkpoints.erase_due(cluster.store, 100.0, 200.0).ids == [ids[50]], "until its file is gone"
    deleted_checkpoints.removed(cluster.store, erasable.ids)
    assert deleted_checkpoints.erase_due(cluster.store, 100.0, 200.0).ids == []
    with pytest.raises(WrongState, match="gone for good"):
        deleted_checkpoints.restore(cluster.store, ids[50], 200.0)
    assert checkpoint_queries.deleted_checkpoints(cluster.store, run_id) == []
    assert save(cluster, fence, 60)[60] not in ids.values()
    cluster.report(fence, "succeeded")
    assert run_queries.run(cluster.store, run_id, 200.0).finding is None


def test_an_object_of_a_bucket_is_discarded_with_its_checkpoint(cluster, trained):
    _, _, ids = trained
    with cluster.store.write() as session:
        session.get_one(Checkpoint, ids[10]).location = "s3://bucket/key"
    deleted_checkpoints.delete(cluster.store, ids[10], 100.0)
    assert checkpoint_reports.discarded(cluster.store, 10) == []
    deleted_checkpoints.erase_due(cluster.store, 100.0, 200.0)
    assert checkpoint_reports.discarded(cluster.store, 10) == ["s3://bucket/key"]


def test_a_pinned_version_of_an_overwritten_file_stays(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    first = store_checkpoint(cluster, fence, path="work/last.pt", step=10, sha="b" * 64)
    deleted_checkpoints.pin(cluster.store, first, cluster.now)
    store_checkpoint(cluster, fence, path="work/last.pt", step=20, sha="c" * 64)
    assert steps_of(cluster, run_id) == [10, 20]


def test_the_rule_of_a_deleted_run_deletes_nothing(cluster, trained):
    run_id, fence, _ = trained
    retention_rules.set_for_run(cluster.store, run_id, "last 1", cluster.now)
    cluster.report(fence, "succeeded")
    deletion.delete(cluster.store, run_id, cluster.now)
    assert retention_rules.ruled_runs(cluster.store) == []
    assert retention.apply(cluster.store, run_id, cluster.now) == []
    deletion.erase(cluster.store, run_id, cluster.now, is_deleted=True)
    with pytest.raises(NoSuchRun):
        retention.apply(cluster.store, run_id, cluster.now)


def test_deletions_are_in_the_audit_log(cluster, trained):
    run_id, _, ids = trained
    apply(cluster, run_id, "last 2")
    deleted_checkpoints.delete(cluster.store, ids[40], cluster.now)
    deleted_checkpoints.restore(cluster.store, ids[40], cluster.now)
    deleted_checkpoints.empty_bin(cluster.store, cluster.now)
    with cluster.store.read() as session:
        actions = list(session.scalars(select(AuditEntry.action).order_by(AuditEntry.id)))
    expected = ["retention-set", "checkpoint-deleted", "checkpoint-deleted", "checkpoint-restored", "bin-emptied"]
    assert actions[-5:] == expected


def test_a_plan_costs_no_more_statements_for_more_checkpoints(cluster, trained):
    run_id, fence, _ = trained
    with statements(cluster.store) as few:
        retention.present_plan(cluster.store, run_id, cluster.now)
    save(cluster, fence, *range(100, 120))
    with statements(cluster.store) as many:
        retention.present_plan(cluster.store, run_id, cluster.now)
    assert len(many) <= len(few) + 1


def test_the_attempts_that_started_from_an_erased_checkpoint_still_name_it(cluster, trained):
    run_id, fence, ids = trained
    cluster.report(fence, "stopped")
    run_requests.resume(cluster.store, run_id, 200.0, "step_20.pt")
    cluster.place()
    second = cluster.assignments()[0].fence
    cluster.report(second, "running")
    save(cluster, second, 25)
    cluster.report(second, "stopped")
    run_requests.resume(cluster.store, run_id, 300.0)
    cluster.place()
    assert apply(cluster, run_id) == [25]
    erasable = deleted_checkpoints.erase_due(cluster.store, cluster.now, 400.0)
    deleted_checkpoints.removed(cluster.store, erasable.ids)
    with cluster.store.read() as session:
        origins = session.scalars(select(Attempt.resume_checkpoint_id).order_by(Attempt.number)).all()
    assert origins[1] == ids[20]


def test_the_rule_of_a_hidden_project_is_as_absent_as_the_project(cluster):
    retention_rules.set_for_project(cluster.store, "secret", "last 1", cluster.now)
    stranger = Rights("mia", everywhere=Role.MEMBER, private=frozenset({"secret"}))
    with acting.acting(stranger):
        hidden = retention_rules.of_project(cluster.store, "secret")
        assert hidden == retention_rules.of_project(cluster.store, "no such project")
        with pytest.raises(Denied):
            retention_rules.set_for_project(cluster.store, "secret", None, cluster.now)


def test_a_member_empties_no_bin_but_an_admin_that_of_their_projects(cluster, trained):
    _, _, ids = trained
    deleted_checkpoints.delete(cluster.store, ids[10], cluster.now)
    with acting.acting(Rights("mia", everywhere=Role.MEMBER)):
        assert deleted_checkpoints.empty_bin(cluster.store, cluster.now).ids == []
    with acting.acting(Rights("eva", in_projects={"default": Role.ADMIN})):
        assert deleted_checkpoints.empty_bin(cluster.store, cluster.now).ids == [ids[10]]


def test_checkpoints_of_others_in_the_bin_do_not_hide_those_of_an_admin(cluster, trained, monkeypatch):
    _, fence, ids = trained
    cluster.report(fence, "succeeded")
    for checkpoint_id in ids.values():
        deleted_checkpoints.delete(cluster.store, checkpoint_id, cluster.now)
    cluster.launch(project="vision")
    own = save(cluster, cluster.assignments()[0].fence, 60)[60]
    deleted_checkpoints.delete(cluster.store, own, cluster.now)
    monkeypatch.setattr(deleted_checkpoints, "AT_ONCE", 1)
    with acting.acting(Rights("mia", in_projects={"vision": Role.ADMIN})):
        assert deleted_checkpoints.empty_bin(cluster.store, cluster.now).ids == [own]
