"""The audit log over HTTP: what each route writes down, once, and who reads it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.dashboard.running import FakeNode, Running

pytestmark = pytest.mark.usefixtures("node")
Entries = list[tuple[str, str, str | None]]


def written(dashboard: Running) -> Entries:
    """What is in the audit log, the oldest first: action, object, project."""
    answer = dashboard.http.get("/api/audit")
    assert answer.status_code == 200, answer.text
    return [(entry["action"], entry["object"], entry["project"]) for entry in reversed(answer.json())]


def test_what_is_done_to_a_run_is_written_down_with_who_and_where(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(project="vision", name="first")
    dashboard.http.patch(f"/api/runs/{run_id}", json={"note": "slow"})
    dashboard.http.post(f"/api/runs/{run_id}/stop")
    dashboard.http.post(f"/api/runs/{run_id}/stop")
    node.report(node.task(), "stopped")
    assert dashboard.http.post(f"/api/runs/{run_id}/resume").is_success
    actions = ("launched", "edited", "stopped", "resumed")
    assert written(dashboard) == [(action, f"run {run_id}", "vision") for action in actions]
    newest = dashboard.http.get("/api/audit", params={"action": "edited"}).json()[0]
    assert (newest["by"], newest["via"], newest["address"]) == ("owner", None, "127.0.0.1")
    assert newest["more"] == {"name": "first", "fields": ["note"]}


def test_what_was_refused_is_not_written_down(dashboard: Running) -> None:
    run_id = dashboard.launch()
    assert dashboard.http.post(f"/api/runs/{run_id}/resume").status_code == 409
    assert dashboard.http.post("/api/nodes/none/drain").status_code == 404
    assert [action for action, _, _ in written(dashboard)] == ["launched"]


@pytest.mark.parametrize(
    ("act", "entries"),
    [
        (lambda http: http.post("/api/nodes/n0/drain"), [("drained", "node n0")]),
        (lambda http: [http.post("/api/nodes/n0/drain"), http.post("/api/nodes/n0/undrain")],
         [("drained", "node n0"), ("undrained", "node n0")]),
        (lambda http: http.post("/api/nodes/n0/undrain"), []),
        (lambda http: http.delete("/api/nodes/n0"), [("node-removed", "node n0")]),
        (lambda http: http.post("/api/preflight"), [("preflight", "1 node")]),
        (lambda http: http.post("/api/nodes/n0/test"), [("hardware-tested", "node n0")]),
    ],
)  # fmt: skip
def test_what_is_done_to_nodes_is_written_down(
    dashboard: Running, node: FakeNode, act: Callable[..., object], entries: list[tuple[str, str]]
) -> None:
    act(dashboard.http)
    assert written(dashboard) == [(*entry, None) for entry in entries]


def test_links_alerts_and_join_tokens_are_written_down_as_made_and_ended(dashboard: Running) -> None:
    run_id = dashboard.launch(project="vision")
    http = dashboard.http
    link = http.post("/api/shared-links", json={"runs": [run_id]}).json()
    alert = http.post("/api/alerts", json={"rule": "failed", "target": "browser", "project": "vision"}).json()
    token = http.post("/api/join-tokens", json={"name": "rack 3"}).json()
    for path in (f"shared-links/{link['id']}", f"alerts/{alert['id']}", f"join-tokens/{token['id']}"):
        assert http.delete(f"/api/{path}").is_success
    assert written(dashboard)[1:] == [
        ("shared", f"link {link['id']}", "vision"),
        ("alert-made", f"alert {alert['id']}", "vision"),
        ("token-made", f"join token {token['id']}", None),
        ("link-revoked", f"link {link['id']}", "vision"),
        ("alert-removed", f"alert {alert['id']}", "vision"),
        ("token-revoked", f"join token {token['id']}", None),
    ]
    assert link["url"].rpartition("/")[2] not in http.get("/api/audit").text


def test_download_is_one_entry_however_often_its_connection_broke(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(project="vision")
    task = node.task()
    node.report(task, "running")
    checkpoint_id = node.store_checkpoint(task, b"0123456789")
    path = f"/api/checkpoints/{checkpoint_id}/file"
    dashboard.http.head(path)
    assert [action for action, _, _ in written(dashboard)] == ["launched"]
    for headers in ({}, {"Range": "bytes=4-"}, {"Range": "bytes=8-"}):
        assert dashboard.http.get(path, headers=headers).is_success
    assert written(dashboard)[1:] == [("downloaded", f"checkpoint work/last.pt of run {run_id}", "vision")]


def test_download_that_skips_the_first_byte_is_written_down(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.report(task, "running")
    checkpoint_id = node.store_checkpoint(task, b"0123456789")
    dashboard.http.get(f"/api/checkpoints/{checkpoint_id}/file", headers={"Range": "bytes=1-"})
    assert written(dashboard)[1:] == [("downloaded", f"checkpoint work/last.pt of run {run_id}", "default")]


@pytest.mark.parametrize(
    ("path", "object_name"),
    [
        ("/api/runs/{run}/logs", "log 0 (out) of run {run}"),
        ("/api/runs/{run}/metrics.csv", "metrics of run {run}"),
        ("/api/export?runs={run}&format=json", "json of run {run}"),
    ],
)
def test_files_of_a_run_are_written_down_when_they_are_downloaded(
    dashboard: Running, path: str, object_name: str
) -> None:
    run_id = dashboard.launch()
    assert dashboard.http.get(path.format(run=run_id)).is_success
    assert written(dashboard)[1:] == [("downloaded", object_name.format(run=run_id), "default")]


def test_looking_at_a_log_is_no_download(dashboard: Running) -> None:
    run_id = dashboard.launch()
    dashboard.http.get(f"/api/runs/{run_id}/logs", params={"limit": 0})
    dashboard.http.get(f"/api/runs/{run_id}/logs/merged")
    assert [action for action, _, _ in written(dashboard)] == ["launched"]


def test_backup_is_written_down_and_holds_the_log(dashboard: Running) -> None:
    made = dashboard.http.post("/api/backup").json()
    assert written(dashboard) == [("backup", made["path"], None)]
    (entry,) = dashboard.http.get("/api/audit").json()
    assert entry["more"] == {"size_bytes": made["size_bytes"]}


def test_entries_are_paged_by_their_ids(dashboard: Running) -> None:
    runs = [dashboard.launch() for _ in range(3)]
    newest = dashboard.http.get("/api/audit", params={"limit": 1}).json()[0]
    older = dashboard.http.get("/api/audit", params={"before": newest["id"]}).json()
    assert [entry["object"] for entry in (newest, *older)] == [f"run {run_id}" for run_id in reversed(runs)]


def test_export_is_one_json_document_a_line(dashboard: Running) -> None:
    runs = [dashboard.launch() for _ in range(2)]
    answer = dashboard.http.get("/api/audit.jsonl")
    assert answer.headers["content-disposition"] == 'attachment; filename="rankzero-audit.jsonl"'
    assert [json.loads(line)["object"] for line in answer.text.splitlines()] == [f"run {one}" for one in runs[::-1]]
    assert written(dashboard)[-1] == ("downloaded", "audit log", None)


def test_export_of_an_empty_log_is_empty(dashboard: Running) -> None:
    answer = dashboard.http.get("/api/audit.jsonl")
    assert answer.status_code == 200 and answer.text == ""


def test_action_that_is_none_is_refused(dashboard: Running) -> None:
    assert dashboard.http.get("/api/audit", params={"action": "danced"}).status_code == 422
