"""An archive is a stranger's file: it tells nothing of what is hidden, takes no code, and its labels are checked."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import Any

import httpx2
import pytest

from dashboard.archives.manifest import MANIFEST, run_file
from db.models import Run
from tests.dashboard.running import Running
from tests.dashboard.security.lab import OPEN, PEOPLE, SECRET, Lab

NO_CODE = "0" * 64


@pytest.fixture
def own(dashboard: Running) -> Lab:
    """A lab that a test may change."""
    return Lab(dashboard)


def exported(lab: Lab, run_id: str) -> bytes:
    answer = lab.dashboard.http.get(f"/api/export?runs={run_id}&format=archive")
    assert answer.status_code == 200, answer.text
    return answer.content


def imported(lab: Lab, who: str, archive: bytes) -> httpx2.Response:
    headers = lab.headers(PEOPLE[who])
    return lab.dashboard.http.post("/api/archives?source=elsewhere", content=archive, headers=headers)


def without_snapshot(lab: Lab, run_id: str) -> None:
    with lab.service.store.write() as session:
        run = session.get_one(Run, run_id)
        run.spec = {**run.spec, "snapshot": None}


def test_an_archive_does_not_tell_whether_an_id_is_taken(own: Lab) -> None:
    run_id, http = own.things[1].run, own.dashboard.http
    without_snapshot(own, run_id)
    archive = exported(own, run_id)
    assert http.patch(f"/api/runs/{run_id}", json={"project": SECRET}).status_code == 200
    taken = imported(own, "another member", archive)
    assert taken.status_code == 201 and taken.json()[0]["id"] != run_id, taken.text
    again = imported(own, "another member", archive)
    assert again.json()[0] == taken.json()[0] | {"is_new": False}
    assert http.delete(f"/api/runs/{run_id}?now=true").status_code == 200
    free = imported(own, "member, whose the objects are", exported(own, taken.json()[0]["id"]))
    assert free.status_code == 201 and free.json()[0]["id"] not in (run_id, taken.json()[0]["id"])
    assert free.json()[0]["is_new"]


def test_an_archive_takes_no_code_that_it_only_names(own: Lab) -> None:
    run_id, hidden = own.things[1].run, own.things[-1].snapshot
    without_snapshot(own, run_id)
    claims = claiming(exported(own, run_id), run_id, hidden)
    refused = imported(own, "another member", claims)
    assert refused.status_code == 422 and f"the code {hidden[:12]} is not in it" in refused.text
    absent = imported(own, "another member", claiming(exported(own, run_id), run_id, NO_CODE))
    assert absent.text.replace(NO_CODE[:12], "X") == refused.text.replace(hidden[:12], "X")


@pytest.mark.parametrize(("project", "status"), [(OPEN, 201), (SECRET, 403)])
def test_the_project_of_an_archive_is_read_as_that_of_a_launch(own: Lab, project: str, status: int) -> None:
    run_id = own.things[1].run
    without_snapshot(own, run_id)
    archive = changed(exported(own, run_id), run_id, run={"project": f" {project} "})
    answer = imported(own, "another member", archive)
    assert answer.status_code == status, answer.text
    if status == 201:
        assert own.dashboard.run(answer.json()[0]["id"])["project"] == project


@pytest.mark.parametrize("wrong", [{"project": ""}, {"project": None}, {"project": [SECRET]}, {"name": "two\nlines"}])
def test_labels_that_no_edit_would_take_come_with_no_archive(own: Lab, wrong: dict[str, Any]) -> None:
    run_id = own.things[1].run
    without_snapshot(own, run_id)
    archive = exported(own, run_id)
    assert imported(own, "another member", changed(archive, run_id, run=wrong)).status_code == 422
    assert imported(own, "another member", changed(archive, run_id, tags=["two words"])).status_code == 422


def claiming(archive: bytes, run_id: str, sha256: str) -> bytes:
    """The archive with a run that names other code, which is not in it."""
    spec_of_run = {"target": "image_classifier", "snapshot": sha256}
    return changed(archive, run_id, run={"spec": spec_of_run})


def changed(archive: bytes, run_id: str, run: dict[str, Any] | None = None, **more: Any) -> bytes:
    """The archive with other values in the document of a run."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    name, manifest = run_file(run_id, "run.json"), json.loads(files[MANIFEST])
    document = json.loads(files[name]) | more
    document["run"] |= run or {}
    files[name] = json.dumps(document).encode()
    manifest["files"][name] = {"size_bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
    files[MANIFEST] = json.dumps(manifest).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as written_archive:
        for one, content in files.items():
            written_archive.writestr(one, content)
    return packed.getvalue()
