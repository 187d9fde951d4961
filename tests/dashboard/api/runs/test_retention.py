"""Checkpoints kept on purpose over the API: rules, pins, the bin, and the forecast of the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.errors import Rejection
from dashboard.service.retention import ERASE_EVERY_S, Retention
from dashboard.settings import DAY_S
from db.checkpoints import checkpoint_queries
from domain.messages import CheckpointOffer
from tests.dashboard.running import FakeNode, Running, sha256_of, wait_for


@pytest.fixture
def run_id(dashboard: Running, node: FakeNode) -> str:
    """A run that trains, and has saved four checkpoints of ten bytes."""
    run_id = dashboard.launch(name="kept")
    task = node.task()
    node.report(task, "running")
    for step in (10, 20, 30, 40):
        store(node, step)
    return run_id


def store(node: FakeNode, step: int) -> int:
    """Store a checkpoint whose step is also the minute in which it was written."""
    content = f"{step:010}".encode()
    offer = CheckpointOffer(
        path=f"work/step_{step}.pt", step=step, size_bytes=10, sha256=sha256_of(content), written_at=60.0 * step
    )
    place = node.client.offer_checkpoint(node.task(), offer)
    if not place.complete:
        node.client.send_checkpoint(place.checkpoint_id, 0, content)
        node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
    return place.checkpoint_id


def steps(dashboard: Running, run_id: str, which: str = "checkpoints") -> list[int]:
    return sorted(one["step"] for one in dashboard.http.get(f"/api/runs/{run_id}/{which}").json())


def by_step(dashboard: Running, run_id: str, step: int) -> int:
    listed = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    return int(next(one["id"] for one in listed if one["step"] == step))


def files(dashboard: Running) -> list[Path]:
    return list(dashboard.service.files.checkpoints.iterdir())


def test_a_rule_says_what_it_frees_then_deletes_it_and_keeps_what_comes(
    dashboard: Running, node: FakeNode, run_id: str
) -> None:
    path = f"/api/runs/{run_id}/retention"
    planned = dashboard.http.put(path, json={"rule": "last 2", "dry_run": True}).json()
    assert planned["sentence"] == "frees 20 B: 2 checkpoints of 1 run"
    assert {one["step"] for one in planned["checkpoints"] if one["kept"] is None} == {10, 20}
    assert dashboard.http.get(path).json()["of"] is None
    assert dashboard.http.put(path, json={"rule": "last 2"}).json()["rule"] == "last 2, pinned"
    wait_for(lambda: steps(dashboard, run_id) == [30, 40], "the rule to be applied")
    store(node, 50)
    wait_for(lambda: steps(dashboard, run_id) == [40, 50], "the rule to be applied again")
    assert len(files(dashboard)) == 5, "the bytes stay in the bin"


def test_the_rule_of_a_project_holds_for_its_runs(dashboard: Running, run_id: str) -> None:
    path = "/api/projects/default/retention"
    planned = dashboard.http.put(path, json={"rule": "last 1", "dry_run": True}).json()
    assert (planned["freed_bytes"], planned["checkpoints"], planned["runs"]) == (30, 3, 1)
    assert dashboard.http.get(path).json()["rule"] == "keep all"
    assert dashboard.http.put(path, json={"rule": "last 1"}).json()["of"] == "project"
    wait_for(lambda: steps(dashboard, run_id) == [40], "the rule to be applied")
    assert dashboard.http.put(path, json={"rule": None}).json()["rule"] == "keep all"


def test_a_wrong_rule_is_refused(dashboard: Running, run_id: str) -> None:
    for path in (f"/api/runs/{run_id}/retention", "/api/projects/default/retention"):
        answer = dashboard.http.put(path, json={"rule": "the newest"})
        assert answer.status_code == 422 and "last 2, best 1 by val/loss" in answer.text


def test_a_pinned_checkpoint_stays(dashboard: Running, run_id: str) -> None:
    chosen = by_step(dashboard, run_id, 20)
    assert dashboard.http.put(f"/api/checkpoints/{chosen}/pin").json()["pinned_by"] == "owner"
    assert dashboard.http.delete(f"/api/checkpoints/{chosen}").status_code == 409
    dashboard.http.put(f"/api/runs/{run_id}/retention", json={"rule": "last 1"})
    wait_for(lambda: steps(dashboard, run_id) == [20, 40], "the rule to be applied")
    assert dashboard.http.delete(f"/api/checkpoints/{chosen}/pin").json()["pinned_at"] is None
    wait_for(lambda: steps(dashboard, run_id) == [40], "the rule to be applied without the pin")


def test_a_deleted_checkpoint_is_in_the_bin_until_its_days_are_over(dashboard: Running, run_id: str) -> None:
    chosen = by_step(dashboard, run_id, 20)
    deleted = dashboard.http.delete(f"/api/checkpoints/{chosen}").json()
    assert deleted["kept_until"] == deleted["deleted_at"] + 7 * DAY_S
    assert steps(dashboard, run_id, "deleted-checkpoints") == [20]
    download = dashboard.http.get(f"/api/checkpoints/{chosen}/file")
    assert download.status_code == 410 and "`rankzero checkpoint restore RUN NAME` brings it back" in download.text
    assert dashboard.http.post(f"/api/checkpoints/{chosen}/restore").json()["pinned_at"] is not None
    assert dashboard.http.get(f"/api/checkpoints/{chosen}/file").content == b"0000000020"
    dashboard.http.delete(f"/api/checkpoints/{chosen}/pin")
    dashboard.http.delete(f"/api/checkpoints/{chosen}")
    dashboard.pass_by(7 * DAY_S + 60)
    wait_for(lambda: len(files(dashboard)) == 3, "its file to go")
    assert dashboard.http.post(f"/api/checkpoints/{chosen}/restore").status_code == 409
    assert "its bytes are gone" in dashboard.http.get(f"/api/checkpoints/{chosen}/file").text


def test_a_node_does_not_send_an_erased_checkpoint_again(dashboard: Running, node: FakeNode, run_id: str) -> None:
    chosen = by_step(dashboard, run_id, 20)
    dashboard.http.delete(f"/api/checkpoints/{chosen}")
    assert dashboard.http.delete("/api/deleted-checkpoints").json() == {"freed_bytes": 10}
    assert len(files(dashboard)) == 3
    assert store(node, 20) == chosen
    assert len(files(dashboard)) == 3 and steps(dashboard, run_id) == [10, 30, 40]


def test_an_archive_has_a_checkpoint_that_was_deleted_while_it_is_written(
    dashboard: Running, run_id: str, tmp_path: Path
) -> None:
    service, chosen = dashboard.service, by_step(dashboard, run_id, 20)

    def content() -> bytes:
        checkpoint, _ = checkpoint_queries.checkpoint_file(service.store, chosen) or pytest.fail("it has no row")
        with service.storages.as_file(checkpoint, tmp_path) as path:
            return path.read_bytes()

    dashboard.http.delete(f"/api/checkpoints/{chosen}")
    assert content() == b"0000000020"
    dashboard.http.delete("/api/deleted-checkpoints")
    with pytest.raises(Rejection, match="its bytes are gone"):
        content()


def test_days_of_zero_leave_no_bin(dashboard: Running, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard.service.retention, "_kept_s", 0.0)
    dashboard.http.delete(f"/api/checkpoints/{by_step(dashboard, run_id, 20)}")
    wait_for(lambda: len(files(dashboard)) == 3, "its file to go at once")


def test_a_removal_that_was_interrupted_is_done_later(
    dashboard: Running, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was killed after the row was written, and before the file was removed."""
    chosen = by_step(dashboard, run_id, 20)
    dashboard.http.delete(f"/api/checkpoints/{chosen}")
    with monkeypatch.context() as patch:
        patch.setattr(dashboard.service.files, "remove", _killed)
        with pytest.raises(SystemExit):
            dashboard.service.retention.empty_bin()
    assert dashboard.service.files.checkpoint(chosen).exists()
    dashboard.pass_by(7 * DAY_S + 60)
    wait_for(lambda: not dashboard.service.files.checkpoint(chosen).exists(), "its file to go")


def test_a_file_that_cannot_be_removed_holds_up_nothing_else(dashboard: Running, run_id: str) -> None:
    service, chosen = dashboard.service, by_step(dashboard, run_id, 20)
    dashboard.http.delete(f"/api/checkpoints/{chosen}")
    path, now = service.files.checkpoint(chosen), service.clock() + 8 * DAY_S
    path.unlink()
    path.mkdir()
    retention = Retention(service.store, service.files, service.hub, lambda: now, 7.0)
    retention.sweep()
    path.rmdir()
    path.touch()
    retention.sweep()
    assert path.exists(), "it is tried again at each tick"
    now += ERASE_EVERY_S
    retention.sweep()
    assert not path.exists()


def _killed(*_: object) -> None:
    raise SystemExit


def test_the_forecast_names_what_could_go(dashboard: Running, run_id: str) -> None:
    forecast = dashboard.http.get("/api/storage").json()
    assert forecast["bytes_per_s"] > 0 and forecast["full_in_s"] > 0 and not forecast["is_soon"]
    assert "at this rate" in forecast["sentence"]
    assert [one["name"] for one in forecast["deletable"]] == [f"work/step_{step}.pt" for step in (10, 20, 30)]
    first = forecast["deletable"][0]
    assert first["command"] == f"rankzero checkpoint delete {run_id} {first['id']}"
