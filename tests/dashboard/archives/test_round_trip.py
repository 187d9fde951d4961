"""A run that is exported as an archive and imported elsewhere is the same run there; damaged archives are refused."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import update

from db.models import Run
from db.people import audit
from db.people.audit import AuditFilter
from domain.imported_runs import ImportRequest
from domain.messages import Finding, Findings, Point
from tests.dashboard.running import FakeNode, Running, running

SECRET = "hf_abcdefghijklmnop"
LOSS: list[Point] = [(step, 1 / step, 100.0 + step) for step in range(1, 20_001)]
SPECIAL: list[Point] = [(1, math.nan, 1.0), (2, math.inf, 2.0), (2**60 + 1, -math.inf, 3.0), (4, -0.0, 4.5)]
CHECKPOINT = bytes(range(256)) * 9000
LOG = b"step 1\n\xff\x00 not text\n" * 500


def trained(dashboard: Running) -> str:
    """A run with a script, two attempts, points, a log, a checkpoint, a finding, a tag and a note."""
    script = dashboard.service.settings.data / "train.py"
    script.write_text("print('trains')\n")
    node = dashboard.node()
    environment = {"HF_TOKEN": SECRET, "SEED": "1"}
    run_id = dashboard.launch(target=str(script), name="<b>first</b>", env=environment, batch_size=8, lr=0.1)
    task = node.task()
    node.report(task, "running", argv=["torchrun", "train.py"], env=environment, pid=7)
    node.log_points(task, 0, train__loss=LOSS, odd=SPECIAL)
    node.append(task, "logs/rank0.out", 0, 0, LOG)
    node.store_checkpoint(task, CHECKPOINT, step=20_000)
    finding = Finding(kind="hung", evidence="It stands still.", meaning="It waits.", fix="Look at its stacks.")
    node.client.findings(task, Findings(findings=[finding]))
    node.report(task, "failed", exit_code=1, message="Rank 0 ended with exit code 1.")
    resume(dashboard, node, run_id)
    changes = {"add_tags": ["paper"], "note": "the best one"}
    assert dashboard.http.patch(f"/api/runs/{run_id}", json=changes).status_code == 200
    return run_id


def resume(dashboard: Running, node: FakeNode, run_id: str) -> None:
    """A second attempt, from the checkpoint, which succeeds."""
    assert dashboard.http.post(f"/api/runs/{run_id}/resume", json={}).status_code in (200, 201)
    task = node.task()
    node.report(task, "running")
    node.log_points(task, 0, train__loss=[(20_001, 0.5, 30_000.0)])
    node.report(task, "succeeded", exit_code=0)


@pytest.fixture
def other(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """Another installation, by default with its store in SQLite."""
    kind = getattr(request, "param", "sqlite")
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else None
    with running(tmp_path / "other", database_url=url) as it:
        yield it


def exported(dashboard: Running, *run_ids: str, **params: Any) -> bytes:
    query = {"runs": ",".join(run_ids), "format": "archive"} | params
    answer = dashboard.http.get("/api/export", params=query)
    assert answer.status_code == 200, answer.text
    return answer.content


def imported(dashboard: Running, archive: bytes) -> httpx2.Response:
    return dashboard.http.post("/api/archives", content=archive)


def everything(dashboard: Running, run_id: str) -> dict[str, Any]:
    """A run as the API gives it, without the ids of its rows in the store."""
    paths = {"run": "", "attempts": "/attempts", "checkpoints": "/checkpoints", "history": "/history",
             "metrics": "/metrics?source=all", "first": "/metrics?attempt=1", "findings": "/findings"}  # fmt: skip
    answers = {name: json_of(dashboard, f"/api/runs/{run_id}{path}") for name, path in paths.items()}
    file = dashboard.http.get(f"/api/checkpoints/{answers['checkpoints'][0]['id']}/file")
    logs = dashboard.http.get(f"/api/runs/{run_id}/logs?rank=0&stream=out&attempt=1")
    snapshot = answers["run"]["spec"]["snapshot"]
    code = dashboard.http.get(f"/api/snapshots/{snapshot}/archive").content
    digests = [hashlib.sha256(content).hexdigest() for content in (file.content, logs.content, code)]
    answers["history"] = [line for line in answers["history"] if "archive" not in line["text"]]
    return _without(answers | {"digests": digests}, "id", "fence", "imported_from", "by", "via") | {"id": run_id}


def json_of(dashboard: Running, path: str) -> Any:
    answer = dashboard.http.get(path)
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


def _without(value: Any, *names: str) -> Any:
    if isinstance(value, dict):
        return {name: _without(item, *names) for name, item in value.items() if name not in names}
    return [_without(item, *names) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("other", ["sqlite", "postgresql"], indirect=True)
def test_an_imported_run_is_the_exported_one(dashboard: Running, other: Running) -> None:
    run_id = trained(dashboard)
    with dashboard.service.store.write() as session:
        session.execute(update(Run).values(by="ana"))
    before = everything(dashboard, run_id)
    archive = exported(dashboard, run_id)
    assert archive == exported(dashboard, run_id)
    answer = imported(other, archive)
    assert answer.status_code == 201, answer.text
    (summary,) = answer.json()
    assert summary["id"] == run_id and summary["points"] == len(LOSS) + len(SPECIAL) + 1
    assert everything(other, run_id) == before
    lines = json_of(other, f"/api/runs/{run_id}/history")
    assert (lines[0]["by"], lines[0]["via"]) == (None, "owner (elsewhere)")
    assert lines[-1]["by"] == "owner" and lines[-1]["text"].endswith(", launched there by ana")
    assert other.run(run_id)["by"] == "owner"
    assert other.run(run_id)["imported_from"] == "archive"
    assert [run["is_new"] for run in imported(other, archive).json()] == [False]
    refusal = other.http.post(f"/api/runs/{run_id}/resume", json={})
    assert refusal.status_code == 409 and "secrets" in refusal.json()["detail"]["message"]
    assert SECRET.encode() not in b"".join(unzipped(archive).values())
    again = imported(other, exported(other, run_id))
    assert again.status_code == 409 and "already exists here" in again.json()["detail"]["message"]
    assert other.http.delete(f"/api/runs/{run_id}?now=true").status_code == 200
    assert list(other.service.files.checkpoints.iterdir()) == []
    assert imported(other, archive).status_code == 201
    assert other.http.get("/api/nodes").json() == []


def test_a_run_that_was_imported_before_it_was_archived_keeps_its_importer(dashboard: Running, other: Running) -> None:
    request = ImportRequest(
        format="tensorboard", source="gpu-1:/runs/9", digest="0" * 64, name="nine", state="succeeded", started_at=1
    )  # fmt: skip
    run_id = dashboard.http.post("/api/imports", json=request.model_dump(mode="json")).json()["id"]
    points = {"start": 0, "series": {"loss": [[1, 0.5, 2.0]]}, "is_last": True}
    assert dashboard.http.post(f"/api/imports/{run_id}/points", json=points).status_code == 200
    archive = exported(dashboard, run_id)
    assert imported(other, archive).status_code == 201
    assert other.run(run_id)["imported_from"] == "tensorboard"
    assert [run["is_new"] for run in imported(other, archive).json()] == [False]
    refusal = other.http.post(f"/api/runs/{run_id}/resume", json={})
    assert refusal.status_code == 409 and "tensorboard" in refusal.json()["detail"]["message"]


def test_an_archive_has_nothing_of_the_audit_log(dashboard: Running) -> None:
    run_id = trained(dashboard)
    entries = audit.entries(dashboard.service.store, AuditFilter(), 100)
    assert {entry.address for entry in entries} == {"127.0.0.1"}
    documents = [piece for name, piece in unzipped(exported(dashboard, run_id)).items() if name.endswith(".json")]
    assert documents and not any(b"127.0.0.1" in piece or b'"audit"' in piece for piece in documents)


def unzipped(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def zipped(files: dict[str, bytes], repeated: str | None = None, compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as target:
        for name, piece in files.items():
            target.writestr(name, piece)
        if repeated:
            with pytest.warns(UserWarning, match="Duplicate name"):
                target.writestr(repeated, files[repeated])
    return content.getvalue()


def with_true_digests(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files under a manifest that agrees with them."""
    manifest = json.loads(files.pop("manifest.json"))
    manifest["files"] = {
        name: {"size_bytes": len(piece), "sha256": hashlib.sha256(piece).hexdigest()} for name, piece in files.items()
    }
    return files | {"manifest.json": json.dumps(manifest).encode()}


def in_document(files: dict[str, bytes], change: Callable[[dict[str, Any]], Any]) -> dict[str, bytes]:
    name = next(name for name in files if name.endswith("/run.json"))
    document = json.loads(files[name])
    change(document)
    return with_true_digests(files | {name: json.dumps(document).encode()})


MISSHAPEN: list[tuple[dict[str, Any], str]] = [
    ({"changes": [1]}, "changes"),
    ({"changes": {"nodes": "many"}}, "changes"),
    ({"changes": {"target": "/other.py"}}, "target never differs"),
    ({"rollback": {"why": 1}}, "rollback"),
    ({"devices": [{}]}, "devices"),
    ({"env": {"A": {}}}, "env"),
    ({"timeline": [3]}, "timeline"),
    ({"collectives": {"ranks": 1}}, "collectives"),
]
"""Values of an attempt or its tasks that no node reports, and on which lists and the scheduler would break."""


def in_rows(change: dict[str, Any], document: dict[str, Any]) -> None:
    for attempt in document["attempts"]:
        for row in (attempt["attempt"], *attempt["tasks"]):
            row.update({name: value for name, value in change.items() if name in row})


def test_an_archive_takes_no_device_of_a_node_here(dashboard: Running, other: Running) -> None:
    run_id = trained(dashboard)
    node = other.node("busy", slots=1)
    lost = {"node_id": node.identity.node_id, "devices": ["cpu:0"]}

    def of_a_lost_node(document: dict[str, Any]) -> None:
        in_rows(lost, document)
        for attempt in document["attempts"]:
            attempt["tasks"][0]["lost_at"] = 5.0

    archive = zipped(in_document(unzipped(exported(dashboard, run_id)), of_a_lost_node))
    assert imported(other, archive).status_code == 201
    launched = other.launch()
    assert node.assignment().run_id == launched


def test_damaged_archive_is_refused_whole(dashboard: Running, other: Running) -> None:
    run_id = trained(dashboard)
    good = unzipped(exported(dashboard, run_id))
    of_run = {name.rpartition("/")[0].rpartition("/")[2]: name for name in good}
    manifest = json.loads(good["manifest.json"])
    bomb = with_true_digests(good | {f"zeros/{number}": bytes(8 * 1024 * 1024) for number in range(12)})
    outside = with_true_digests(good | {"../../outside": b"x"})
    newer = json.dumps(manifest | {"version": 2}).encode()
    first = "attempts", 0
    cases: list[tuple[bytes, str]] = [
        (b"no zip file", "cannot be read"),
        (zipped({"a": b""}), "no manifest.json"),
        (zipped(good | {"manifest.json": b"{}"}), "manifest.json is not valid"),
        (zipped(good | {"manifest.json": newer}), "version 2"),
        (zipped(good | {of_run["checkpoints"]: CHECKPOINT[:-1] + b"!"}), "SHA-256"),
        (zipped(good | {of_run["checkpoints"]: CHECKPOINT * 2}), "SHA-256"),
        (zipped(good, repeated=of_run["files"]), "not those of its manifest"),
        (zipped(bomb, compression=zipfile.ZIP_DEFLATED), "unpacks to more than 100 times"),
        (zipped(good | {"more": b""}), "not those of its manifest"),
        (zipped(with_true_digests(good | {of_run["series"]: b"x" * 25})), "cut off"),
        (zipped(with_true_digests(good | {of_run["series"]: b""})), "damaged"),
        (zipped(with_true_digests(good | {of_run["checkpoints"]: CHECKPOINT[::-1]})), "another one"),
        (zipped(in_document(good, lambda d: d["run"].update(id="../../../x"))), "another run's"),
        (zipped(in_document(good, lambda d: d["run"].update(spec={"target": 3}))), "target"),
        (zipped(in_document(good, lambda d: d[first[0]][0]["attempt"].update(state="running"))), "must have ended"),
        (zipped(in_document(good, lambda d: d["attempts"].append(d["attempts"][0]))), "contradict"),
        *[(zipped(in_document(good, partial(in_rows, change))), field) for change, field in MISSHAPEN],
    ]  # fmt: skip
    for archive, problem in cases:
        answer = imported(other, archive)
        assert answer.status_code == 422 and problem in answer.json()["detail"]["message"], (
            problem,
            answer.text,
        )
        assert other.http.get("/api/runs").json() == []
        assert list(other.service.files.checkpoints.iterdir()) == []
        assert [path.name for path in other.service.files.incoming.iterdir() if path.is_dir()] == []
    assert imported(other, zipped(outside)).status_code == 201
    assert not list(other.service.settings.data.parent.rglob("outside*"))


def test_an_archive_can_leave_the_checkpoints_out(dashboard: Running, other: Running) -> None:
    run_id = trained(dashboard)
    archive = exported(dashboard, run_id, checkpoints="false")
    assert not any("/checkpoints/" in name for name in unzipped(archive))
    assert imported(other, archive).status_code == 201
    assert other.http.get(f"/api/runs/{run_id}/checkpoints").json() == []


def test_a_run_that_trains_is_not_archived(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    node.report(node.task(), "running")
    answer = dashboard.http.get("/api/export", params={"runs": run_id, "format": "archive"})
    assert answer.status_code == 409 and "stop it" in answer.json()["detail"]["message"]
