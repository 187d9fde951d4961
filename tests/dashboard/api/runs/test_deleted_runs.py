"""A deleted run leaves every list at once, and the disk a week later; until then an admin brings it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.settings import DAY_S
from db import acting
from db.exceptions import NoSuchRun
from domain.people.rights import Denied, Rights
from domain.people.roles import Role
from domain.spec import RunSpec
from tests.dashboard.running import FakeNode, Running, wait_for

CONTENT = b"weights"


@pytest.fixture
def run_id(dashboard: Running, node: FakeNode) -> str:
    """An ended run with a log and a checkpoint."""
    run_id = dashboard.launch(name="ended")
    task = node.task()
    node.append(task, "logs/rank0.out", 0, 0, b"hello")
    node.store_checkpoint(task, CONTENT)
    node.report(task, "succeeded")
    return run_id


def files(dashboard: Running) -> list[Path]:
    return [path for path in dashboard.service.files.root.rglob("*") if path.is_file() and path.name != "proof"]


def test_names_of_files_on_the_servers_disk_are_numbers(dashboard: Running, run_id: str) -> None:
    names = {path.name.partition(".")[0] for path in files(dashboard)}
    assert names and all(name.isdecimal() for name in names)


def test_a_deleted_run_is_brought_back_with_its_files(dashboard: Running, run_id: str) -> None:
    kept, before = files(dashboard), dashboard.run(run_id)
    (checkpoint,) = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    deleted = dashboard.http.delete(f"/api/runs/{run_id}").json()
    assert deleted["freed_bytes"] == len(b"hello") + len(CONTENT)
    assert files(dashboard) == kept and dashboard.http.get("/api/runs").json() == []
    for path in ("", "/history", "/logs", "/metrics", "/checkpoints"):
        assert dashboard.http.get(f"/api/runs/{run_id}{path}").status_code == 404
    assert dashboard.http.get(f"/api/checkpoints/{checkpoint['id']}/file").status_code == 404
    assert dashboard.http.post(f"/api/runs/{run_id}/resume", json={}).status_code == 404
    assert dashboard.http.get("/api/named-runs", params={"name": run_id}).status_code == 404
    (listed,) = dashboard.http.get("/api/deleted-runs").json()
    assert (listed["id"], listed["deleted_by"], listed["size_bytes"]) == (run_id, "owner", deleted["freed_bytes"])
    assert listed["kept_until"] == pytest.approx(deleted["kept_until"]) == listed["deleted_at"] + 7 * DAY_S
    assert dashboard.http.post(f"/api/runs/{run_id}/restore").json()["id"] == run_id
    assert dashboard.run(run_id) == before and dashboard.http.get("/api/deleted-runs").json() == []
    assert dashboard.http.get(f"/api/checkpoints/{checkpoint['id']}/file").content == CONTENT
    assert dashboard.http.post(f"/api/runs/{run_id}/restore").status_code == 404
    lines = [(line["text"], line["by"]) for line in dashboard.http.get(f"/api/runs/{run_id}/history").json()]
    assert lines[-2:] == [("deleted", "owner"), ("brought back after its deletion", "owner")]


def test_its_files_go_when_the_days_are_over(dashboard: Running, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dashboard.http.delete(f"/api/runs/{run_id}").status_code == 200
    dashboard.service.deletions.sweep()
    assert len(files(dashboard)) == 3
    later = dashboard.service.clock() + 7 * DAY_S + 60
    monkeypatch.setattr(dashboard.service.deletions, "_clock", lambda: later)
    wait_for(lambda: not files(dashboard), "the files of the deleted run to go")
    assert dashboard.http.get("/api/deleted-runs").json() == []
    assert dashboard.http.post(f"/api/runs/{run_id}/restore").status_code == 404


def test_the_disk_is_freed_at_once_before_and_after_a_deletion(dashboard: Running, node: FakeNode, run_id: str) -> None:
    assert dashboard.http.delete(f"/api/runs/{run_id}?now=true").json()["kept_until"] is None
    assert files(dashboard) == [] == dashboard.http.get("/api/deleted-runs").json()
    second = dashboard.launch()
    node.report(node.task(), "succeeded")
    assert dashboard.http.delete(f"/api/deleted-runs/{second}").status_code == 404
    assert dashboard.http.delete(f"/api/runs/{second}").status_code == 200
    assert dashboard.http.delete(f"/api/deleted-runs/{second}").json()["kept_until"] is None
    assert dashboard.http.get("/api/deleted-runs").json() == []


def test_a_member_deletes_own_runs_and_only_an_admin_undoes_it_or_frees_the_disk(
    dashboard: Running, node: FakeNode
) -> None:
    service, ana = dashboard.service, Rights("ana", everywhere=Role.MEMBER)
    with acting.acting(ana):
        run_id = service.launch(RunSpec(target="image_classifier", gpus_per_node=1))
    node.report(node.task(), "succeeded")
    with acting.acting(ana):
        with pytest.raises(Denied, match="only admins can see, restore or erase deleted runs"):
            service.delete(run_id, at_once=True)
        service.delete(run_id)
        with pytest.raises(Denied, match="only admins can see, restore or erase deleted runs"):
            service.restore(run_id)
        assert service.deletions.deleted() == []
    stranger = Rights("eve", in_projects={"other": Role.ADMIN}, private=frozenset({"default"}))
    with acting.acting(stranger), pytest.raises(NoSuchRun):
        service.restore(run_id)
    with acting.acting(Rights("ivo", in_projects={"default": Role.ADMIN})):
        (deleted,) = service.deletions.deleted()
        assert (deleted.by, deleted.deleted_by) == ("ana", "ana")
        assert service.restore(run_id).by == "ana"


def test_many_deleted_runs_are_brought_back_together(dashboard: Running, node: FakeNode, run_id: str) -> None:
    def done(**request: object) -> dict[str, object]:
        action = dashboard.http.post("/api/bulk-actions", json=request).json()

        def look() -> dict[str, object] | None:
            document = dashboard.http.get(f"/api/bulk-actions/{action['id']}").json()
            return document if document["state"] != "running" else None

        return wait_for(look, "the end of the action")

    outcome = done(action="delete", runs=[run_id])
    assert outcome["can_undo"] and outcome["kept_until"] and dashboard.http.get("/api/runs").json() == []
    assert done(action="restore", runs=[run_id])["changed"] == [run_id]
    assert [run["id"] for run in dashboard.http.get("/api/runs").json()] == [run_id]
    outcome = done(action="delete", runs=[run_id], now=True)
    assert not outcome["can_undo"] and files(dashboard) == []
    wrong = dashboard.http.post("/api/bulk-actions", json={"action": "stop", "runs": [run_id], "now": True})
    assert wrong.status_code == 422
