"""A deleted run leaves every list at once, and the disk a week later; until then its person or an admin restores it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.settings import DAY_S
from db import acting
from db.exceptions import NoSuchRun
from db.people import notices
from domain.people.rights import Denied, Rights
from domain.people.roles import Action, Role
from domain.spec import RunSpec
from tests.dashboard.persons import person
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
    assert lines[-2:] == [("deleted", "owner"), ("restored after its deletion", "owner")]


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


ANA, BEN, VIC = (Rights(name, everywhere=role) for name, role in
                 (("ana", Role.MEMBER), ("ben", Role.MEMBER), ("vic", Role.VIEWER)))  # fmt: skip
IVO = Rights("ivo", in_projects={"default": Role.ADMIN})
STRANGER = Rights("eve", in_projects={"other": Role.ADMIN}, private=frozenset({"default"}))


@pytest.fixture
def of_ana(dashboard: Running, node: FakeNode) -> str:
    """An ended run of ana's."""
    person(dashboard.service, "ana", Role.MEMBER)
    with acting.acting(ANA):
        run_id = dashboard.service.launch(RunSpec(target="image_classifier", gpus_per_node=1))
    node.report(node.task(), "succeeded")
    return run_id


def test_members_delete_and_restore_their_own_runs_and_only_an_admin_frees_the_disk(
    dashboard: Running, of_ana: str
) -> None:
    service = dashboard.service
    for deleter, restorer in ((ANA, ANA), (IVO, ANA), (ANA, IVO)):
        with acting.acting(deleter):
            service.delete(of_ana)
        with acting.acting(BEN), pytest.raises(Denied, match="It belongs to ana: only they and an admin"):
            service.restore(of_ana)
        with acting.acting(VIC), pytest.raises(Denied, match="only members can act on this"):
            service.restore(of_ana)
        with acting.acting(STRANGER), pytest.raises(NoSuchRun):
            service.restore(of_ana)
        with acting.acting(restorer):
            assert service.restore(of_ana).by == "ana"
    with acting.acting(ANA), pytest.raises(Denied, match="only admins can delete runs for good"):
        service.delete(of_ana, at_once=True)


def test_members_see_who_deleted_a_run_and_others_only_that_there_is_none(dashboard: Running, of_ana: str) -> None:
    service = dashboard.service
    with acting.acting(IVO):
        service.delete(of_ana)
    for rights, may_restore in ((ANA, True), (BEN, False), (IVO, True)):
        with acting.acting(rights):
            (deleted,) = service.deletions.deleted()
            assert (deleted.by, deleted.deleted_by, deleted.may_restore) == ("ana", "ivo", may_restore)
            with pytest.raises(NoSuchRun, match=f"Run {of_ana} was deleted by ivo"):
                service.references.check_run(Action.SEE, of_ana)
    for rights in (VIC, STRANGER):
        with acting.acting(rights):
            assert service.deletions.deleted() == []
            with pytest.raises(NoSuchRun, match=f"There is no run '{of_ana}'"):
                service.references.check_run(Action.SEE, of_ana)
    for name in (of_ana, "image_classifier"):
        answer = dashboard.http.get("/api/named-runs", params={"name": name})
        assert answer.status_code == 404 and "was deleted by ivo" in answer.text


def test_whose_run_another_deleted_gets_a_notice(dashboard: Running, of_ana: str) -> None:
    service = dashboard.service
    for rights in (ANA, IVO):
        with acting.acting(rights):
            service.delete(of_ana)
        with acting.acting(ANA):
            told = [notice.sentence for notice in notices.unread(service.store)]
            service.restore(of_ana)
        assert told == ([] if rights is ANA else ["ivo deleted your run image_classifier."])


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
