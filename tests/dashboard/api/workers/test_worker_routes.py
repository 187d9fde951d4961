"""All routes of workers, walked with each kind of token: what a task's own opens, and that it ends with the task."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from db.models import CheckpointTask
from domain.messages import Bundle, PieceHead
from tests.dashboard.running import FakeNode, Running, running, sha256_of
from tests.worker.environments.making import archive

CODE = archive({"train.py": "print(1)\n"})
SNAPSHOT = hashlib.sha256(CODE).hexdigest()
WHEEL = "made-1-py3-none-any.whl"
TASK = "/api/worker/attempts/{fence}/tasks/{node_rank}"
SHUT = frozenset({403, 404, 409, 410})
KINDS = ("node", "any", "delivery", "live")


class Route(NamedTuple):
    """How a route of workers is asked, and who may."""

    opens_to: str
    """node: a worker itself; delivery: a task, also for what it still has to send; live: a task that has not ended."""
    body: object = None
    query: str = ""


OFFER = {"path": "work/last.pt", "step": 1, "size_bytes": 7, "sha256": sha256_of(b"weights"), "written_at": 1.0}
ROUTES: dict[tuple[str, str], Route] = {
    ("POST", "/api/worker/register"): Route("node"),
    ("GET", "/api/worker/desired"): Route("node", query="?wait=0"),
    ("POST", "/api/worker/load"): Route("node", {}),
    ("POST", "/api/worker/jobs/{fence}"): Route("node"),
    ("POST", "/api/worker/checks/{check_id}"): Route("node"),
    ("POST", "/api/worker/tests/{test_id}"): Route("node"),
    ("POST", "/api/worker/wheels/{sha256}/failed"): Route("node", {}),
    ("PUT", "/api/worker/wheels/{sha256}/{name}"): Route("node", b"weights"),
    ("GET", "/api/worker/time"): Route("any"),
    ("POST", f"{TASK}/report"): Route("delivery", {"state": "running"}),
    ("POST", f"{TASK}/findings"): Route("delivery", {"findings": []}),
    ("POST", f"{TASK}/stacks"): Route("delivery", {"requested_at": 1.0, "at": 1.0, "ranks": {}}),
    ("POST", f"{TASK}/profiles"): Route("delivery", {"profile": "a" * 10, "rank": 0, "state": "failed"}),
    ("POST", f"{TASK}/collectives"): Route("delivery", {"ranks": []}),
    ("GET", f"{TASK}/files"): Route("delivery", query="?path=logs/rank0.out"),
    ("POST", f"{TASK}/checkpoints"): Route("delivery", OFFER),
    ("POST", "/api/worker/pieces"): Route("delivery"),
    ("PUT", "/api/worker/checkpoints/{checkpoint_id}/data"): Route("delivery", b"", "?offset=0"),
    ("POST", "/api/worker/checkpoints/{checkpoint_id}/parts"): Route("delivery", {"first": 1, "sha256": ["0" * 64]}),
    ("POST", "/api/worker/checkpoints/{checkpoint_id}/complete"): Route("delivery", {}),
    ("POST", "/api/worker/checkpoints/{checkpoint_id}/resent"): Route("delivery", {}),
    ("POST", "/api/worker/attempts/{fence}/checkpoint-tasks/{task_id}"): Route("delivery", {"state": "running"}),
    ("GET", "/api/worker/attempts/{fence}/checkpoint-tasks/{task_id}/push"): Route("node"),
    ("GET", "/api/worker/checkpoints/{checkpoint_id}/file"): Route("live"),
    ("GET", "/api/worker/snapshots/{sha256}"): Route("live"),
    ("POST", f"{TASK}/wheels/wanted"): Route("live", {"wheels": []}),
    ("GET", f"{TASK}/wheels/{{sha256}}/{{name}}"): Route("live"),
    ("GET", f"{TASK}/locks/{{key}}"): Route("live"),
    ("PUT", f"{TASK}/locks/{{key}}"): Route("live", b"forged"),
}
UNPREPARED = {f"POST /api/worker/checkpoints/{{checkpoint_id}}/{what}" for what in ("complete", "parts")}
"""What a task may ask for, but not yet: its checkpoint has not arrived, and no bucket has parts of it."""


class Holder:
    """Whoever holds the token of one attempt's task."""

    def __init__(self, node: FakeNode) -> None:
        assignment = node.assignment()
        self.run_id, self.fence, self.token = assignment.run_id, assignment.fence, assignment.token
        source = assignment.resume_from
        self.resumes_from = source.checkpoint_id if source else 0
        self.sent = self.work = 0

    def status(self, dashboard: Running, method: str, path: str, route: Route, token: str | None = None) -> int:
        """Ask for what belongs to this task, with its token or another; returns the status, of its piece for pieces."""
        sha256 = sha256_of(b"wheel") if "wheels" in path else SNAPSHOT
        checkpoint = self.resumes_from if path.endswith("/file") else self.sent
        filled = path.format(
            fence=self.fence, node_rank=0, sha256=sha256, name=WHEEL, key="0123456789abcdef",
            checkpoint_id=checkpoint, check_id=1, test_id=1, task_id=self.work,
        )  # fmt: skip
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        more: dict[str, Any] = {"content": route.body} if isinstance(route.body, bytes) else {"json": route.body or {}}
        if path.endswith("/pieces"):
            head = PieceHead(fence=self.fence, node_rank=0, path="logs/rank0.out", size_bytes=1)
            more = {"content": Bundle.body([head], [b"x"])}
        more = {} if method == "GET" else more
        answer: httpx2.Response = dashboard.anonymous().request(method, filled + route.query, headers=headers, **more)
        if path.endswith("/pieces") and answer.status_code == 200:
            return int(answer.json()["answers"][0]["status"])
        return answer.status_code


class Cluster:
    """A node with a live resumed attempt of one run, whose first attempt has ended; and another node."""

    def __init__(self, dashboard: Running) -> None:
        self.node = dashboard.node()
        dashboard.http.put(f"/api/snapshots/{SNAPSHOT}", content=CODE).raise_for_status()
        (dashboard.service.wheels.root / WHEEL).write_bytes(b"wheel")
        self.run_id = dashboard.launch(target="/project", entry="train.py", snapshot=SNAPSHOT)
        self.node.store_checkpoint(self.node.task(), b"weights")
        self.node.report(self.node.task(), "failed", reason="script error", message="It broke.")
        dashboard.http.post(f"/api/runs/{self.run_id}/resume").raise_for_status()
        self.holder = Holder(self.node)
        content = b"further"
        offer = self.node.offer(self.node.task(), content, "work/next.pt")
        self.holder.sent = self.node.client.offer_checkpoint(self.node.task(), offer).checkpoint_id
        self.holder.work = self._work_on(dashboard, self.holder.sent)
        self.other = dashboard.node("n1")

    def _work_on(self, dashboard: Running, checkpoint_id: int) -> int:
        """The id of work on a checkpoint that has ended, so that it opens nothing by itself."""
        with dashboard.service.store.write() as session:
            task = CheckpointTask(
                kind="merge", checkpoint_id=checkpoint_id, options={}, node_id=self.node.client.node_id, asked_at=1.0,
                state="cancelled", ended_at=1.0,
            )  # fmt: skip
            session.add(task)
            session.flush()
            return task.id


Statuses = dict[str, int]


def walked(dashboard: Running, cluster: Cluster, token: str | None = None) -> Statuses:
    """The status of each route, asked for what is the task's."""
    return {
        f"{method} {path}": cluster.holder.status(dashboard, method, path, route, token)
        for (method, path), route in ROUTES.items()
    }


def open_of(statuses: Statuses, *kinds: str) -> Statuses:
    """The routes of these kinds that are not shut, with their statuses."""
    names = {f"{method} {path}" for (method, path), route in ROUTES.items() if route.opens_to in (kinds or KINDS)}
    return {name: status for name, status in statuses.items() if name in names and status not in SHUT}


def shut_of(statuses: Statuses, *kinds: str) -> Statuses:
    """The routes of these kinds that do not answer 200."""
    names = {f"{method} {path}" for (method, path), route in ROUTES.items() if route.opens_to in kinds}
    return {name: status for name, status in statuses.items() if name in names and status != 200}


def test_every_route_of_workers_stands_in_the_table(shared: Running) -> None:
    described = shared.http.get("/api/openapi.json").json()["paths"]
    there = {(m.upper(), path) for path, methods in described.items() if "/worker/" in path for m in methods}
    assert there == set(ROUTES)


def test_a_tasks_token_opens_what_is_its_tasks_and_nothing_of_others(dashboard: Running) -> None:
    cluster, tokens = Cluster(dashboard), dashboard.service.credentials
    another = tokens.attempt_token(cluster.holder.fence - 1, cluster.node.identity.node_id)
    others_own = tokens.attempt_token(cluster.holder.fence, cluster.other.identity.node_id)
    assert open_of(walked(dashboard, cluster, another), "node", "delivery", "live") == {}
    assert open_of(walked(dashboard, cluster, others_own), "node", "delivery", "live") == {}
    assert open_of(walked(dashboard, cluster, cluster.other.client.token), "delivery", "live") == {}
    statuses = walked(dashboard, cluster)
    assert open_of(statuses, "node") == {} and set(shut_of(statuses, "any", "live", "delivery")) == UNPREPARED


def end(cluster: Cluster) -> None:
    cluster.node.report(cluster.node.task(), "failed", reason="script error", message="It broke again.")


def walks(dashboard: Running, cluster: Cluster) -> list[Statuses]:
    """The walks with each token that speaks for the task: its own, and its node's."""
    return [walked(dashboard, cluster, token) for token in (None, cluster.node.client.token)]


def test_what_ended_or_was_erased_opens_nothing_also_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as dashboard:
        cluster = Cluster(dashboard)
        walked(dashboard, cluster)
        end(cluster)
        assert [open_of(statuses, "live") for statuses in walks(dashboard, cluster)] == [{}, {}]
    with running(data) as dashboard:
        assert [open_of(statuses, "live") for statuses in walks(dashboard, cluster)] == [{}, {}]
        dashboard.http.delete(f"/api/runs/{cluster.run_id}", params={"now": True}).raise_for_status()
        erased(dashboard, cluster)
    with running(data) as dashboard:
        erased(dashboard, cluster)
        assert not list((data / "wheels" / "locks").iterdir())


def erased(dashboard: Running, cluster: Cluster) -> None:
    """Check that nothing answers for an erased run."""
    by_task, by_node = walks(dashboard, cluster)
    assert open_of(by_task) == {} and open_of(by_node, "delivery", "live") == {}


def test_the_tokens_of_a_removed_nodes_tasks_end_with_it(dashboard: Running) -> None:
    cluster = Cluster(dashboard)
    end(cluster)
    dashboard.http.delete("/api/nodes/n0").raise_for_status()
    statuses = walked(dashboard, cluster)
    assert open_of(statuses) == {} and statuses["GET /api/worker/time"] == 410
