"""Budgets: charged in the transaction that opens an attempt, so that launches at the same time gain nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import select, update

from db import acting
from db.attempts.new_attempt import by_policy, open_next_attempt
from db.budgets import charges
from db.engine import Store
from db.models import AccessToken, Attempt, Charge, Run, User
from db.people import access_tokens
from db.runs import deletion, run_requests
from db.studies import studies
from domain.agents.budget import HOUR_S, OverBudget
from domain.people.rights import Denied, Rights
from domain.people.roles import Role, Scope
from domain.people.tokens import Bounds, BudgetView, TokenWanted
from domain.spec import RunEdit, RunSpec
from domain.sweeps import SweepPlan
from tests.db.cluster import Cluster

pytestmark = pytest.mark.both_stores
SPEC = RunSpec(target="image_classifier", gpus_per_node=1, batch_size=8, lr=0.1)
PLAN = SweepPlan.model_validate({"parameters": {"lr": {"values": [0.1]}}, "metric": "loss"})


def agent(store: Store, *, scope: Scope = Scope.MCP, name: str = "agent", **bounds: float | None) -> Rights:
    """The rights of a token of ana's with a budget of four device-hours unless the bounds say another."""
    with store.write() as session:
        if session.get(User, "ana") is None:
            session.add(User(name="ana", role=Role.MEMBER, created_at=1.0))
    wanted = TokenWanted(name, scope, None, bounds=Bounds(**{"budget_s": 4 * HOUR_S} | bounds))
    access_tokens.make(store, "ana", wanted, f"hash of {name}", 50.0)
    with store.read() as session:
        token_id = session.scalars(select(AccessToken.id).where(AccessToken.name == name)).one()
    return Rights("ana", f"token {name}", Role.MEMBER, scope=scope, token_id=token_id)


def launch(cluster: Cluster, rights: Rights, expected_s: float | None = None, **spec: object) -> str:
    with acting.acting(rights):
        asked = RunSpec.model_validate(SPEC.model_dump() | spec)
        return run_requests.submit(cluster.store, asked, cluster.now, expected_s=expected_s)


def budget(cluster: Cluster, rights: Rights) -> BudgetView:
    with cluster.store.read() as session:
        return charges.budget_of(session, session.get_one(AccessToken, rights.token_id), cluster.now)


def used_h(cluster: Cluster, rights: Rights) -> float:
    return budget(cluster, rights).used_s / HOUR_S


def train(cluster: Cluster, seconds: float, state: str = "succeeded") -> None:
    """Place what is queued, train, and end the first attempt that runs."""
    cluster.place()
    (assignment, *_) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    cluster.now += seconds
    cluster.report(assignment.fence, state)


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(OverBudget, match=words):
        yield


def test_hour_is_reserved_at_the_launch_and_longer_runs_take_what_they_take(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    run_id = launch(cluster, rights)
    assert (used_h(cluster, rights), budget(cluster, rights).devices) == (1.0, 1)
    cluster.place()
    cluster.now += 2 * HOUR_S
    assert used_h(cluster, rights) == 2.0
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    cluster.report(assignment.fence, "succeeded")
    cluster.now += HOUR_S
    assert (used_h(cluster, rights), budget(cluster, rights).devices) == (2.0, 0)
    with cluster.store.read() as session:
        assert session.get_one(Run, run_id).token_id == rights.token_id


def test_a_run_that_ended_early_gives_back_what_it_reserved(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    launch(cluster, rights, expected_s=720.0)
    assert used_h(cluster, rights) == pytest.approx(0.2)
    train(cluster, 36.0, "failed")
    assert used_h(cluster, rights) == pytest.approx(0.01)


def test_run_that_ends_in_the_queue_frees_what_it_reserved(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    run_id = launch(cluster, rights)
    with acting.acting(rights):
        run_requests.request_stop(cluster.store, run_id, cluster.now)
    assert budget(cluster, rights).used_s == 0.0


def test_deleted_and_erased_runs_stay_charged(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    run_id = launch(cluster, rights)
    train(cluster, 1.5 * HOUR_S)
    deletion.delete(cluster.store, run_id, cluster.now)
    deletion.erase(cluster.store, run_id, cluster.now, is_deleted=True)
    cluster.now += HOUR_S
    assert (used_h(cluster, rights), budget(cluster, rights).devices) == (1.5, 0)


def test_launch_beyond_the_budget_is_refused_and_leaves_nothing(cluster: Cluster) -> None:
    rights = agent(cluster.store, budget_s=1.5 * HOUR_S)
    launch(cluster, rights)
    with refused(r"1 device for up to 1 h \(1 device-hours\); token agent has 0\.5 of 1\.5 device-hours left"):
        launch(cluster, rights)
    launch(cluster, rights, expected_s=HOUR_S / 2)
    with cluster.store.read() as session:
        assert len(session.scalars(select(Run)).all()) == len(session.scalars(select(Attempt)).all()) == 2


def test_devices_in_use_and_in_the_queue_count(cluster: Cluster) -> None:
    rights = agent(cluster.store, most_devices=2)
    launch(cluster, rights)
    launch(cluster, rights)
    with refused("may use 2 at a time, and its runs have or wait for 2"):
        launch(cluster, rights)
    assert charges.must_wait(cluster.store, rights.token_id, SPEC, cluster.now)
    train(cluster, 10.0)
    assert not charges.must_wait(cluster.store, rights.token_id, SPEC, cluster.now)
    launch(cluster, rights)


def test_race_of_twenty_launches_gains_nothing(cluster: Cluster) -> None:
    rights = agent(cluster.store)

    def try_to_launch(_: int) -> bool:
        try:
            launch(cluster, rights)
        except OverBudget:
            return False
        return True

    with ThreadPoolExecutor(20) as threads:
        assert sum(threads.map(try_to_launch, range(20))) == 4
    assert used_h(cluster, rights) == 4.0


def test_restarts_at_the_same_time_in_transactions_of_their_own_gain_nothing(cluster: Cluster) -> None:
    """Reports of different attempts are stored side by side (PostgreSQL): the token's row keeps their charges apart."""
    rights = agent(cluster.store, budget_s=6 * HOUR_S, name="six")
    runs = [launch(cluster, rights) for _ in range(4)]
    with cluster.store.write() as session:
        ended = {"state": "failed", "placed_at": cluster.now - HOUR_S, "ended_at": cluster.now}
        session.execute(update(Attempt).where(Attempt.run_id.in_(runs)).values(ended))

    def restart(run_id: str) -> bool:
        try:
            with cluster.store.write(f"attempt of {run_id}") as session, by_policy(session, run_id):
                open_next_attempt(session, run_id, cluster.now, None, why="it is restarted")
        except OverBudget:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(restart, runs)) == 2
    assert used_h(cluster, rights) == 6.0


def test_automatic_restart_is_charged_and_refused_where_nothing_is_left(cluster: Cluster) -> None:
    rights = agent(cluster.store, budget_s=2.5 * HOUR_S)
    launch(cluster, rights, max_restarts=5)
    train(cluster, HOUR_S, "failed")
    assert used_h(cluster, rights) == 2.0, "the second attempt reserves an hour of its own"
    run_id = launch(cluster, rights, expected_s=HOUR_S / 2, max_restarts=5)
    train(cluster, HOUR_S / 2, "failed")
    with cluster.store.read() as session:
        attempts = session.scalars(select(Attempt.state).where(Attempt.run_id == run_id)).all()
    assert list(attempts) == ["failed"]
    assert history(cluster, run_id)[-1] == (
        "not restarted: This launch would take 1 device for up to 30 min (0.5 device-hours); "
        "token agent has 0 of 2.5 device-hours left."
    )


def history(cluster: Cluster, run_id: str) -> list[str]:
    from db.runs import run_queries

    return [entry.text for entry in run_queries.history(cluster.store, run_id)]


def test_what_a_person_resumes_is_not_charged(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    run_id = launch(cluster, rights)
    train(cluster, HOUR_S, "failed")
    with acting.acting(Rights("ana", everywhere=Role.MEMBER)):
        run_requests.resume(cluster.store, run_id, cluster.now)
    assert used_h(cluster, rights) == 1.0
    with cluster.store.read() as session:
        assert len(session.scalars(select(Charge)).all()) == 1


def test_token_to_act_with_a_budget_resumes_what_its_person_launched(cluster: Cluster) -> None:
    rights = agent(cluster.store, scope=Scope.ACT)
    run_id = launch(cluster, Rights("ana", everywhere=Role.MEMBER))
    train(cluster, 10.0, "failed")
    with acting.acting(rights):
        run_requests.resume(cluster.store, run_id, cluster.now)
    assert used_h(cluster, rights) == 1.0


def test_agent_resumes_stops_and_edits_only_its_own_runs(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    others = launch(cluster, Rights("ana", everywhere=Role.MEMBER))
    own = launch(cluster, rights)
    with acting.acting(rights):
        run_requests.edit(cluster.store, own, RunEdit(add_tags=["tried"]), cluster.now)
        run_requests.request_stop(cluster.store, own, cluster.now)
        run_requests.resume(cluster.store, own, cluster.now)
        for change in (RunEdit(project="elsewhere"), RunEdit(baseline=True)):
            with pytest.raises(Denied, match="scope of token agent is mcp"):
                run_requests.edit(cluster.store, own, change, cluster.now)
        with pytest.raises(Denied, match="not made with token agent"):
            run_requests.request_stop(cluster.store, others, cluster.now)
        with pytest.raises(Denied, match="scope of token agent is mcp"):
            deletion.delete(cluster.store, own, cluster.now)


def test_agent_without_a_budget_launches_nothing(cluster: Cluster) -> None:
    rights = Rights("ana", "token agent", Role.MEMBER, scope=Scope.MCP)
    with refused("Token agent has no budget, so it may only propose a run"):
        launch(cluster, rights)
    with acting.acting(rights), refused("only propose"):
        studies.create(cluster.store, SPEC, PLAN, cluster.now)


def test_sweep_keeps_the_token_that_pays(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    with acting.acting(rights):
        sweep = studies.study(cluster.store, studies.create(cluster.store, SPEC, PLAN, cluster.now), SweepPlan)
    assert sweep.token_id == rights.token_id


def test_ended_token_opens_nothing_more(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    run_id = launch(cluster, rights)
    access_tokens.revoke(cluster.store, "ana", "agent", cluster.now)
    cluster.place()
    assert [one.run_id for one in cluster.assignments()] == [run_id], "what it launched goes on"
    with refused("has ended: nothing more is charged"):
        launch(cluster, rights)


def test_elastic_run_on_fewer_devices_takes_those(cluster: Cluster) -> None:
    rights = agent(cluster.store)
    launch(cluster, rights, nodes="1:2", gpus_per_node=1)
    assert budget(cluster, rights).devices == 2
    cluster.place()
    assert budget(cluster, rights).devices == 1
