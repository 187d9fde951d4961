"""Runs over the time of their token end at a checkpoint; without one, after a grace."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from db import acting
from db.models import Attempt, Checkpoint
from db.runs import run_requests, time_limits
from domain.agents.budget import HOUR_S, OverBudget
from domain.people.rights import Rights
from tests.db.budgets.test_charges import agent, history, launch
from tests.db.cluster import Cluster

pytestmark = pytest.mark.both_stores


@pytest.fixture
def rights(cluster: Cluster) -> Rights:
    return agent(cluster.store, budget_s=3 * HOUR_S, longest_s=2 * HOUR_S)


def start(cluster: Cluster, rights: Rights, **spec: object) -> tuple[str, int]:
    """Launch a run, and let it train."""
    run_id = launch(cluster, rights, **spec)
    cluster.place()
    (fence,) = [one.fence for one in cluster.assignments() if one.run_id == run_id]
    cluster.report(fence, "running")
    return run_id, fence


def save(cluster: Cluster, fence: int, step: int) -> None:
    """Store a complete checkpoint now."""
    with cluster.store.write() as session:
        session.add(
            Checkpoint(
                fence=fence, node_rank=0, path=f"step{step}.pt", step=step, size_bytes=1, sha256=f"{step:064}",
                received_bytes=1, complete=True, written_at=cluster.now, created_at=cluster.now,
            )
        )  # fmt: skip


def after(cluster: Cluster, seconds: float) -> list[str]:
    cluster.now += seconds
    return time_limits.enforce(cluster.store, cluster.now)


def end_message(cluster: Cluster, fence: int) -> str | None:
    with cluster.store.read() as session:
        attempt = session.get_one(Attempt, fence)
        return attempt.end_message if attempt.stop_requested_at is not None else None


def test_run_over_its_time_ends_at_its_next_checkpoint(cluster: Cluster, rights: Rights) -> None:
    run_id, fence = start(cluster, rights, max_restarts=3)
    save(cluster, fence, 300)
    assert after(cluster, 1.5 * HOUR_S) == []
    assert after(cluster, 0.45 * HOUR_S) == [run_id]
    line = "has trained for 95 % of its 2 h (token agent), and will end at a checkpoint"
    assert history(cluster, run_id)[-1] == line
    assert after(cluster, 0.1 * HOUR_S) == [], "the checkpoint is from before, and the line is there"
    save(cluster, fence, 400)
    assert after(cluster, 1.0) == [run_id]
    sentence = "It has trained for its 2 h (token agent); it ended at checkpoint step 400."
    assert end_message(cluster, fence) == sentence
    assert after(cluster, 1.0) == []
    cluster.report(fence, "stopped", message="Stopped.")
    with cluster.store.read() as session:
        attempts = session.scalars(select(Attempt).where(Attempt.run_id == run_id)).all()
    assert [(one.state, one.message) for one in attempts] == [("stopped", sentence)], "it is not restarted"
    with acting.acting(rights), pytest.raises(OverBudget, match="has trained for its 2 h, which token agent allows"):
        run_requests.resume(cluster.store, run_id, cluster.now)


def test_run_without_checkpoints_ends_after_ten_minutes(cluster: Cluster, rights: Rights) -> None:
    run_id, fence = start(cluster, rights)
    after(cluster, 2 * HOUR_S)
    assert after(cluster, 599.0) == []
    assert after(cluster, 1.0) == [run_id]
    assert end_message(cluster, fence) == (
        "It has trained for its 2 h (token agent); it ended without a checkpoint, as none came within 10 min."
    )


def test_rare_checkpoints_are_awaited_longer(cluster: Cluster, rights: Rights) -> None:
    run_id, fence = start(cluster, rights)
    for step in (1, 2):
        cluster.now += HOUR_S / 2
        save(cluster, fence, step)
    after(cluster, HOUR_S)
    assert after(cluster, HOUR_S - 1.0) == []
    assert after(cluster, 1.0) == [run_id]


def test_time_counts_over_attempts(cluster: Cluster, rights: Rights) -> None:
    run_id, fence = start(cluster, rights)
    cluster.now += 1.5 * HOUR_S
    cluster.report(fence, "failed")
    with acting.acting(rights):
        run_requests.resume(cluster.store, run_id, cluster.now)
    cluster.place()
    (again,) = cluster.assignments()
    cluster.now += 1000.0  # it builds its environment, which is no training
    cluster.report(again.fence, "running")
    save(cluster, again.fence, 1)
    assert after(cluster, HOUR_S / 2 - 1.0) == [run_id], "of its 95 %"
    save(cluster, again.fence, 2)
    assert after(cluster, 0.0) == []
    cluster.now += 2.0
    save(cluster, again.fence, 3)
    assert after(cluster, 0.0) == [run_id]


def test_run_that_uses_the_budget_up_ends_at_a_checkpoint(cluster: Cluster) -> None:
    rights = agent(cluster.store, budget_s=2 * HOUR_S)
    run_id, fence = start(cluster, rights)
    save(cluster, fence, 1)
    assert after(cluster, 2 * HOUR_S - 1.0) == []
    cluster.now += 2.0
    save(cluster, fence, 2)
    assert after(cluster, 0.0) == [run_id]
    assert end_message(cluster, fence) == "The budget of token agent is used up; it ended at checkpoint step 2."


def test_run_keeps_the_hour_that_it_was_charged_at_once(cluster: Cluster) -> None:
    rights = agent(cluster.store, budget_s=2 * HOUR_S)
    long, long_fence = start(cluster, rights)
    cluster.now += HOUR_S / 2
    _, short_fence = start(cluster, rights)
    cluster.now += HOUR_S / 2 + 10.0
    save(cluster, long_fence, 1)
    save(cluster, short_fence, 1)
    assert after(cluster, 0.0) == [long]
    assert end_message(cluster, short_fence) is None


def test_persons_run_has_no_limit(cluster: Cluster, rights: Rights) -> None:
    _, fence = start(cluster, Rights("ana", rights.via, rights.everywhere))
    save(cluster, fence, 1)
    assert after(cluster, 100 * HOUR_S) == []
