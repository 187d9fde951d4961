"""Two dashboards on one PostgreSQL and one folder of files: what happens at one is seen at the other."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from dashboard.api.workers.attempts import LONGEST_WAIT_S
from dashboard.live.pubsub import DashboardPeers
from db.channel import Channel
from db.nodes.node_reports import Claim
from db.runs import run_queries
from tests.dashboard.running import HEARD_FOR_S, FakeNode, Page, Running, running, wait_for
from tests.postgresql import Cluster
from worker.session.failures import ServerAway, Unauthorized


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Running, Running]]:
    settings: dict[str, Any] = {"database_url": postgres_url, "files": tmp_path / "files"}
    with running(tmp_path / "a", **settings) as here, running(tmp_path / "b", **settings) as there:
        yield here, there


@pytest.fixture
def node(pair: tuple[Running, Running]) -> FakeNode:
    """A worker that speaks with the first dashboard."""
    return pair[0].node()


@contextmanager
def soon(action: Callable[[], object]) -> Iterator[None]:
    """Somebody does it while somebody else waits: a wait that ends by itself has no news."""
    timer = threading.Timer(0.3, action)
    timer.start()
    yield
    timer.join()


def points_of(page: Page, name: str, count: int) -> list[list[Any]]:
    """The first `count` points of a series that a page is shown."""
    received: list[list[Any]] = [
        p for m in page.received if m["type"] == "series" for p in m["series"].get(name, {"points": []})["points"]
    ]
    while len(received) < count:
        message = page.next(lambda m: m["type"] == "series" and name in m["series"])
        received += message["series"][name]["points"]
    return received


def test_points_and_states_are_seen_at_once_at_the_other_dashboard(pair, node: FakeNode):
    here, there = pair
    run_id = here.launch()
    task = node.task()
    node.report(task, "running")
    offset = node.log_points(task, 0, train__loss=[(1, 3.0, 1.0), (2, math.nan, 2.0)])
    with there.watching(run_id) as page:
        page.subscribe()
        assert points_of(page, "train/loss", 2) == [[1, 3.0, 1.0], [2, "NaN", 2.0]]
        for step in range(3, 40):
            offset = node.log_points(task, offset, train__loss=[(step, 1.0 / step, float(step))])
        shown = points_of(page, "train/loss", 39)
        assert [p[0] for p in shown] == list(range(1, 40))
        node.report(task, "succeeded")
        page.next(lambda m: m["type"] == "run" and m["run"]["state"] == "succeeded")


def test_points_through_both_dashboards_are_shown_once_at_each(pair):
    here, there = pair
    nodes_ = [here.node("n0", 1), there.node("n1", 1)]
    run_id = here.launch(nodes=2, gpus_per_node=1)
    tasks = [wait_for(lambda n=n: n.client.desired_state(None, 0).assignments, "its part")[0] for n in nodes_]
    by_rank = {wanted.node_rank: (node, node.task()) for node, wanted in zip(nodes_, tasks, strict=True)}
    with here.watching(run_id) as one, there.watching(run_id) as other:
        for page in (one, other):
            page.subscribe()
            page.next_of("run")
        for turn in range(20):
            for node, task in by_rank.values():
                node.log_points(task, turn * 10, loss=[(turn, float(turn), float(turn + 1))])
        for page in (one, other):
            for name in ("loss", "node1/loss"):
                assert [p[0] for p in points_of(page, name, 20)] == list(range(20)), name


def test_a_launch_at_one_reaches_a_worker_that_waits_at_the_other(pair, node: FakeNode):
    _, there = pair
    version = node.client.desired_state(None, 0).version
    with soon(there.launch):
        assert node.client.desired_state(version, LONGEST_WAIT_S).assignments


def test_foreign_messages_on_the_channel_do_no_harm(pair, node: FakeNode):
    _, there = pair
    for said in ("hello", "[1]", '{"from": "x", "runs": {"nosuchrun1": ["run", "points"]}, "nodes": ["y"]}'):
        Channel(there.service.store).send(said)
    version = node.client.desired_state(None, 0).version
    with soon(there.launch):
        assert node.client.desired_state(version, LONGEST_WAIT_S).assignments
    assert all(thread.is_alive() for dashboard in pair for thread in dashboard.service.peers._threads)


def test_a_stop_at_one_reaches_a_worker_that_waits_at_the_other(pair, node: FakeNode):
    here, there = pair
    run_id = here.launch()
    version = node.client.desired_state(None, 0).version
    with soon(lambda: there.http.post(f"/api/runs/{run_id}/stop")):
        assert [a.action for a in node.client.desired_state(version, LONGEST_WAIT_S).assignments] == ["stop"]


def test_points_are_wanted_sooner_while_somebody_watches_at_the_other(pair, node: FakeNode):
    here, there = pair
    run_id = here.launch()
    before = node.client.desired_state(None, 0)
    assert not before.watched
    with there.watching(run_id) as page:
        page.next_of("run")
        assert node.client.desired_state(before.version, LONGEST_WAIT_S).watched


def test_logs_and_checkpoints_brought_to_one_are_had_from_the_other(pair, node: FakeNode):
    here, there = pair
    run_id = here.launch()
    task = node.task()
    node.report(task, "running")
    with there.watching(run_id) as page:
        page.subscribe(logs={"rank": 0, "stream": "out", "attempt": None})
        node.append(task, "logs/rank0.out", 0, 0, b"hello from rank 0\n")
        assert page.next(lambda m: m["type"] == "log" and m["text"])["text"] == "hello from rank 0\n"
        checkpoint = node.store_checkpoint(task, b"weights" * 100)
        page.next_of("checkpoints")
    answer = there.http.get(f"/api/checkpoints/{checkpoint}/file")
    assert (answer.status_code, answer.content) == (200, b"weights" * 100)


def test_each_dashboard_keeps_its_own_proof_of_a_shared_disk(pair):
    for dashboard in pair:
        adoption = dashboard.node(f"n-{dashboard.url[-4:]}").identity.adopt
        assert Path(adoption.proof_file).read_text() == adoption.proof


def test_a_token_that_was_renewed_at_one_ends_at_the_other(pair, node: FakeNode):
    node.client.desired_state(None, 0)
    again = node.facts.model_copy(update={"instance_id": "later"})
    renewed = pair[1].service.register(again, Claim(node.identity.node_id, proven=True))
    assert renewed.token != node.client.token

    def is_refused() -> bool:
        try:
            node.client.desired_state(None, 0)
            return False
        except Unauthorized:
            return True

    wait_for(is_refused, "the old token to end")


def test_silence_is_written_down_by_one_of_them(pair, node: FakeNode):
    run_id = pair[0].launch()
    node.report(node.task(), "running")
    services = [dashboard.service for dashboard in pair]
    wait_for(lambda: sum(service.peers.leads for service in services) == 1, "one of them to lead")
    for service in services:
        service.schedule()  # nothing that was heard is left to be written down
        later = service.clock() + HEARD_FOR_S + 100
        service.lease.judging_time = lambda now, later=later: later
    wait_for(lambda: all(service.silence._silent_attempts for service in services), "both to notice")
    lines = [line.text for line in run_queries.history(services[0].store, run_id)]
    assert len([line for line in lines if line.startswith("no contact")]) == 1


def test_when_the_one_that_leads_ends_the_other_leads(postgres_url: str, tmp_path: Path):
    with running(tmp_path / "b", database_url=postgres_url) as there:
        wait_for(lambda: there.service.peers.leads, "it to lead, alone")
        with running(tmp_path / "a", database_url=postgres_url) as here:
            time.sleep(0.7)
            assert not here.service.peers.leads
            there.service.peers.close()
            wait_for(lambda: here.service.peers.leads, "the other to lead")


def test_after_the_server_was_restarted_both_go_on(pair, node: FakeNode, postgres: Cluster):
    here, there = pair
    run_id = here.launch()
    task = node.task()
    node.report(task, "running")
    offset = node.log_points(task, 0, loss=[(1, 3.0, 1.0)])
    with there.watching(run_id) as page:
        page.subscribe()
        points_of(page, "loss", 1)
        postgres.stop()
        with pytest.raises(ServerAway):
            node.log_points(task, offset, loss=[(2, 2.0, 2.0)])
        assert there.http.get("/api/runs").status_code == 503
        assert there.http.get("/api/health").status_code == 200
        postgres.start()
        wait_for(lambda: not any(d.service.store.trouble for d in pair), "the store to be back at both")
        assert there.http.get("/api/runs").status_code == 200
    with there.watching(run_id) as page:  # as browsers do when the connection broke
        page.subscribe()
        offset = node.log_points(task, offset, loss=[(2, 2.0, 2.0)])
        assert [p[0] for p in points_of(page, "loss", 2)] == [1, 2]
        wait_for(lambda: any(d.service.peers.leads for d in pair), "one of them to lead again")
        node.log_points(task, offset, loss=[(3, 2.0, 3.0)])
        assert [p[0] for p in points_of(page, "loss", 3)] == [1, 2, 3]
        node.report(task, "succeeded")
        page.next(lambda m: m["type"] == "run" and m["run"]["state"] == "succeeded")


def test_a_dashboard_is_told_which_workers_to_wake_and_of_very_many_that_it_is_all() -> None:
    woken: list[object] = []

    class Listener:
        def deliver(self, run_id: str, message: dict[str, object]) -> None: ...
        def watched_runs(self) -> list[str]:
            return []

        def wake_workers(self, nodes: Any = None) -> None:
            woken.append(nodes if nodes is None else sorted(nodes))

        def wake_workers_of(self, run_ids: Any) -> None: ...

    here, there = (DashboardPeers(cast(Any, None), Listener()) for _ in range(2))
    here._channel.send = there._receive  # type: ignore[method-assign]
    names = [f"{number:010}" for number in range(100)]
    here.announce_desired_state(names)
    here._send()
    assert [name for each in woken for name in cast(list[str], each)] == names
    woken.clear()
    here.announce_desired_state([str(number) for number in range(2000)])
    here._send()
    assert woken == [None, []]
