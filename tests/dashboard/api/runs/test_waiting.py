"""`GET /api/runs/RUN/wait`: what ends a wait, and what its answer has."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from db.people import accounts
from domain.messages import Finding, Findings
from domain.people.roles import Role
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import FakeNode, Running, running, wait_for
from worker.session.client import TaskRef

HUNG = Finding(kind="hung", evidence="no step for 600 s", meaning="A rank waits.", fix="Look at its stacks.")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads for requests that wait."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def task(dashboard: Running, node: FakeNode) -> TaskRef:
    """The task of a run that trains."""
    dashboard.launch(gpus_per_node=1)
    task = node.task()
    node.report(task, "running")
    return task


@pytest.fixture
def run_id(task: TaskRef, node: FakeNode) -> str:
    """The run that trains."""
    return node.assignment().run_id


def asked(dashboard: Running, run_id: str, http: httpx2.Client | None = None, **query: Any) -> httpx2.Response:
    """The response to a wait."""
    return (http or dashboard.http).get(f"/api/runs/{run_id}/wait", params=query)


def waiting(
    threads: ThreadPoolExecutor, dashboard: Running, run_id: str, http: httpx2.Client | None = None, **query: Any
) -> Future[httpx2.Response]:
    """A request that waits by now, as long as it may."""
    outcome = threads.submit(asked, dashboard, run_id, http, **{"timeout": 600} | query)
    wait_for(lambda: dashboard.service.hub.watched(run_id) or outcome.done(), "the request to wait")
    return outcome


def test_a_wait_ends_with_the_run(
    dashboard: Running, node: FakeNode, task: TaskRef, run_id: str, threads: ThreadPoolExecutor
) -> None:
    outcome = waiting(threads, dashboard, run_id)
    node.report(task, "succeeded", exit_code=0)
    news = outcome.result().json()
    assert (news["id"], news["reached"], news["is_met"]) == (run_id, "ended", True)
    assert (news["state"], news["attempt"], news["step"]) == ("succeeded", 1, None)
    again = asked(dashboard, run_id, since=news["cursor"], timeout=600).json()
    assert again == {"id": run_id, "reached": "ended", "is_met": True, "cursor": news["cursor"]}


def test_only_what_is_new_is_in_the_answer(dashboard: Running, node: FakeNode, task: TaskRef, run_id: str) -> None:
    first = asked(dashboard, run_id, timeout=0).json()
    assert (first["reached"], first["is_met"], first["state"]) == ("timeout", False, "running")
    node.log_points(task, 0, train__loss=[(7, 0.5, 1e9)], val__loss=[(5, 0.6, 1e9)], other=[(7, 3.0, 1e9)])
    second = asked(dashboard, run_id, timeout=0, since=first["cursor"]).json()
    assert (second["step"], second["values"]) == (7, {"train/loss": 0.5, "val/loss": 0.6})
    assert "state" not in second and "findings" not in second
    third = asked(dashboard, run_id, timeout=0, since=second["cursor"]).json()
    assert [*third] == ["id", "reached", "is_met", "cursor"]


def test_a_wait_ends_when_a_figure_reaches_a_value(
    dashboard: Running, node: FakeNode, task: TaskRef, run_id: str, threads: ThreadPoolExecutor
) -> None:
    node.log_points(task, 0, val__loss=[(1, 0.9, 1e9)])
    before = asked(dashboard, run_id, until="val/loss < 0.2", timeout=0).json()
    outcome = waiting(threads, dashboard, run_id, until="val/loss < 0.2", since=before["cursor"])
    node.log_points(task, 10, val__loss=[(2, 0.1, 1e9), (3, 0.8, 1e9)])
    news = outcome.result().json()
    assert (news["reached"], news["is_met"], news["values"]) == ("condition", True, {"val/loss": 0.8})


def test_a_value_between_two_requests_counts(dashboard: Running, node: FakeNode, task: TaskRef, run_id: str) -> None:
    node.log_points(task, 0, acc=[(1, 0.95, 1e9), (2, 0.1, 1e9)])
    before = asked(dashboard, run_id, timeout=0, until="acc > 0.9").json()
    assert not before["is_met"]
    node.log_points(task, 10, acc=[(3, 0.92, 1e9), (4, 0.2, 1e9)])
    assert asked(dashboard, run_id, timeout=0, until="acc > 0.9", since=before["cursor"]).json()["is_met"]
    assert asked(dashboard, run_id, timeout=0, until="step >= 4").json()["reached"] == "condition"


def test_values_of_the_next_attempt_count_from_its_first_step(
    dashboard: Running, node: FakeNode, task: TaskRef, run_id: str
) -> None:
    node.log_points(task, 0, acc=[(100, 0.1, 1e9)])
    before = asked(dashboard, run_id, timeout=0, until="acc > 0.9").json()
    node.report(task, "failed", exit_code=1)
    assert dashboard.http.post(f"/api/runs/{run_id}/resume").status_code == 200
    again = node.task()
    node.report(again, "running")
    node.log_points(again, 0, acc=[(50, 0.95, 1e9), (60, 0.2, 1e9)])
    news = asked(dashboard, run_id, timeout=0, until="acc > 0.9", since=before["cursor"]).json()
    assert (news["reached"], news["attempt"]) == ("condition", 2)


def test_a_finding_ends_a_wait_and_is_told_once(
    dashboard: Running, node: FakeNode, task: TaskRef, run_id: str, threads: ThreadPoolExecutor
) -> None:
    outcome = waiting(threads, dashboard, run_id, until="step > 1000000")
    node.client.findings(task, Findings(findings=[HUNG]))
    news = outcome.result().json()
    assert (news["reached"], news["is_met"]) == ("finding", False)
    assert [(one["kind"], one["fix"]) for one in news["findings"]] == [("hung", "Look at its stacks.")]
    assert asked(dashboard, run_id, timeout=0, since=news["cursor"]).json()["reached"] == "timeout"
    assert asked(dashboard, run_id, until="finding").json()["is_met"]


@pytest.mark.parametrize(
    ("query", "status", "field", "words"),
    [
        ({"until": "loss is small"}, 400, "until", 'write ended, finding, running, "step >= 1000"'),
        ({"since": "yesterday"}, 400, "since", "since must be the cursor of an earlier answer"),
        ({"timeout": 601}, 422, "timeout", "must be at most 600"),
    ],
)
def test_a_wrong_request_is_refused_with_the_rule(
    shared: Running, query: dict[str, Any], status: int, field: str, words: str
) -> None:
    response = asked(shared, shared.launch(), **query)
    detail = response.json()["detail"]
    assert (response.status_code, detail["field"]) == (status, field) and words in detail["message"]


def test_a_revoked_token_ends_its_waits_at_once_and_says_why(
    dashboard: Running, node: FakeNode, task: TaskRef, run_id: str, threads: ThreadPoolExecutor
) -> None:
    made = dashboard.http.post("/api/tokens", json={"name": "agent", "scope": "read"}).json()
    with_token = dashboard.anonymous(Authorization=f"Bearer {made['token']}")
    ending, staying = (waiting(threads, dashboard, run_id, http) for http in (with_token, None))
    wait_for(lambda: dashboard.service.access_tokens.sockets.names(), "the token's request")
    assert dashboard.http.delete("/api/tokens/agent").status_code == 200
    refused = ending.result()
    assert refused.status_code == 401
    assert refused.json()["detail"]["message"].startswith("The token agent was revoked at ")
    assert not staying.done()
    node.report(task, "failed", exit_code=1)
    assert staying.result().json()["reached"] == "ended"


def test_whoever_loses_the_role_waits_no_longer(dashboard: Running, run_id: str, threads: ThreadPoolExecutor) -> None:
    ana = browser_of(dashboard, person(dashboard.service, "ana", Role.VIEWER))
    outcome = waiting(threads, dashboard, run_id, ana)
    accounts.set_role(dashboard.service.store, "ana", None, None)
    dashboard.service.identities.forget()
    dashboard.service.hub.wake_viewers()
    assert outcome.result().status_code == 404


def test_the_end_of_the_dashboard_ends_a_wait(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    with running(tmp_path / "data") as dashboard:
        dashboard.node()
        outcome = waiting(threads, dashboard, dashboard.launch())
    assert outcome.result().json()["reached"] == "timeout"


@pytest.mark.real
def test_a_point_and_the_end_of_the_dashboard_wake_requests_over_real_connections(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    with ExitStack() as stack, running(tmp_path / "data", on_port=True) as dashboard:
        node = dashboard.node()
        run_id = dashboard.launch(gpus_per_node=1)
        task = node.task()
        node.report(task, "running")
        woken = waiting(threads, dashboard, run_id, until="loss < 1")
        node.log_points(task, 0, loss=[(1, 0.5, 1e9)])
        assert woken.result().json()["reached"] == "condition"
        http = stack.enter_context(httpx2.Client(base_url=dashboard.url, headers=dashboard.bearer, timeout=60))
        released = waiting(threads, dashboard, run_id, http, until="loss < 0.1")
    assert released.result().json()["reached"] == "timeout"
