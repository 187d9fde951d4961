"""Where nothing tells which files are one checkpoint, no attempt starts from any by itself, and a person names one."""

from __future__ import annotations

import pytest

from db.attempts import new_attempt
from db.checkpoints import checkpoint_queries
from db.runs import run_queries, run_requests
from domain.messages import Delivery, Reason, State
from domain.recovery import UnclearCheckpoint
from domain.requests.errors import InvalidRequest
from tests.db.attempts.offers import store_checkpoint, view

PARTS = ("work/data.pt", "work/optim_world_size_2_rank_0.pt", "work/model_world_size_2_rank_0.pt")


def save_parts(cluster) -> int:
    fence = cluster.assignments()[0].fence
    for number, path in enumerate(PARTS):
        store_checkpoint(cluster, fence, path=path, step=None, sha=f"{number}" * 64)
    return fence


def last_line(cluster, run_id: str) -> str:
    return run_queries.history(cluster.store, run_id)[-1].text


def test_a_resume_asks_for_a_name_and_starts_from_the_named_one(cluster):
    run_id = cluster.launch()
    cluster.report(save_parts(cluster), "stopped")
    with pytest.raises(UnclearCheckpoint, match=r"--checkpoint NAME"):
        run_requests.resume(cluster.store, run_id, 200.0)
    with pytest.raises(InvalidRequest, match=r"--resume RUN:NAME"):
        cluster.launch(resume=run_id)
    run_requests.resume(cluster.store, run_id, 200.0, "model_world_size_2_rank_0.pt")
    cluster.place()
    assert cluster.assignments()[0].resume_from.name == PARTS[2]


def test_the_list_marks_no_latest_and_names_the_parts(cluster):
    run_id = cluster.launch()
    save_parts(cluster)
    views = {one.name: one for one in checkpoint_queries.checkpoints(cluster.store, run_id)}
    assert [one.latest for one in views.values()] == [False] * 3
    assert [views[path].is_part for path in PARTS] == [True, True, False]


def test_parts_beside_a_whole_checkpoint_change_nothing(cluster):
    run_id = cluster.launch()
    fence = save_parts(cluster)
    whole = store_checkpoint(cluster, fence, path="work/global_step_20.tar", step=20, sha="e" * 64)
    cluster.report(fence, "stopped")
    run_requests.resume(cluster.store, run_id, 200.0)
    cluster.place()
    assert cluster.assignments()[0].resume_from.checkpoint_id == whole


def test_a_failed_run_is_not_restarted_and_its_history_says_why(cluster):
    run_id = cluster.launch(max_restarts=1)
    fence = save_parts(cluster)
    cluster.report(fence, "running")
    cluster.report(fence, "failed", reason=Reason.SCRIPT_ERROR, message="it failed")
    run = view(cluster, run_id)
    assert (run.state, run.attempt) == (State.FAILED, 1)
    assert last_line(cluster, run_id).startswith("not restarted: It is unclear which files of the run")


def test_an_attempt_that_waited_for_the_last_files_ends_with_the_question(cluster):
    run_id = cluster.launch(max_restarts=1)
    fence = save_parts(cluster)
    cluster.report(fence, "running")
    left = Delivery(sent_bytes=1, total_bytes=2, seconds_left=1.0, has_checkpoints=True)
    cluster.report(fence, "failed", reason=Reason.SCRIPT_ERROR, message="it failed", delivery=left)
    assert view(cluster, run_id).state == State.QUEUED
    cluster.report(fence, "failed")
    assert new_attempt.choose_awaited(cluster.store, cluster.now, 30) == [run_id]
    run = view(cluster, run_id)
    assert (run.state, run.reason, run.attempt) == (State.FAILED, Reason.RESUME_FAILED, 2)
    assert "Name the one to start from" in run.message and run.ended_at == cluster.now
    run_requests.resume(cluster.store, run_id, cluster.now, PARTS[2])
    assert view(cluster, run_id).attempt == 3
