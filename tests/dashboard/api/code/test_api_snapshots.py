"""Snapshots over HTTP: brought, checked, launched, fetched by nodes, and gone with their last run."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from cli import main
from dashboard.snapshots.archive import pack
from dashboard.snapshots.selection import select
from domain.people.roles import Role
from tests.dashboard.checkouts import commit, names_in, write
from tests.dashboard.git_server import git_over_https
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import FakeNode, Running, running
from worker.session.failures import RequestRefused

OCTETS = {"Content-Type": "application/octet-stream"}
MIB = 1024 * 1024


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    code = write(tmp_path / "code", train_py="print(1)\n", package__x_py="")
    return pack(select(code), tmp_path / "archive", MIB).path.read_bytes()


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(dashboard: Running, content: bytes) -> str:
    """Bring an archive; returns its hash."""
    sha256 = sha256_of(content)
    answer = dashboard.http.put(f"/api/snapshots/{sha256}", content=content, headers=OCTETS)
    assert answer.status_code == 200, answer.text
    return sha256


def launch(dashboard: Running, sha256: str, **more: object) -> str:
    return dashboard.launch(**{"target": "/x/train.py", "entry": "train.py", "snapshot": sha256} | more)


def end(dashboard: Running, node: FakeNode, run_id: str) -> None:
    node.report(node.task(), "succeeded")
    assert dashboard.http.delete(f"/api/runs/{run_id}?now=true").status_code == 200


def test_a_snapshot_is_brought_once_and_fetched_by_its_node(dashboard, node, archive, tmp_path):
    sha256 = sha256_of(archive)
    assert dashboard.http.head(f"/api/snapshots/{sha256}").status_code == 404
    put(dashboard, archive)
    assert dashboard.http.head(f"/api/snapshots/{sha256}").status_code == 200
    about = dashboard.http.get(f"/api/snapshots/{sha256}").json()
    assert (about["size_bytes"], about["files"], about["origin"]) == (len(archive), 2, {})
    with pytest.raises(RequestRefused, match="No run of this node"):
        node.client.download_snapshot(sha256, tmp_path / "fetched")
    launch(dashboard, sha256)
    node.client.download_snapshot(sha256, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == archive
    assert dashboard.http.get(f"/api/snapshots/{sha256}/archive").content == archive
    other = dashboard.node("n1")
    with pytest.raises(RequestRefused, match="No run of this node"):
        other.client.download_snapshot(sha256, tmp_path / "fetched")


def test_every_node_of_a_run_gets_the_same(dashboard, archive, tmp_path):
    nodes = [dashboard.node("n0", 1), dashboard.node("n1", 1)]
    sha256 = put(dashboard, archive)
    launch(dashboard, sha256, nodes=2)
    for number, node in enumerate(nodes):
        assert node.assignment().spec.snapshot == sha256
        node.client.download_snapshot(sha256, tmp_path / str(number))
        assert (tmp_path / str(number)).read_bytes() == archive


def test_where_it_came_from_is_told_beside_it(dashboard, archive):
    path = f"/api/snapshots/{put(dashboard, archive)}"
    origin = {"kind": "folder", "path": "/x", "host": "gpu-1", "commit": "a" * 40, "dirty": True}
    assert dashboard.http.put(f"{path}/origin", json=origin).json()["origin"].items() >= origin.items()
    assert dashboard.http.get(path).json()["origin"]["dirty"] is True
    wrong = dashboard.http.put(f"{path}/origin", json=origin | {"commit": "HEAD"})
    assert wrong.status_code == 422 and wrong.json()["detail"]["field"] == "commit"
    assert dashboard.http.put(f"/api/snapshots/{'0' * 64}/origin", json=origin).status_code == 404


def test_nobody_rewrites_where_the_code_of_anothers_run_came_from(dashboard, archive):
    sha256 = put(dashboard, archive)
    path, sent = f"/api/snapshots/{sha256}", {"kind": "folder", "path": "/x", "host": "gpu-1"}
    dashboard.http.put(f"{path}/origin", json=sent)
    launch(dashboard, sha256, wait_for_nodes=True)
    ana = browser_of(dashboard, person(dashboard.service, "ana", Role.MEMBER))
    token = ana.post("/api/tokens", json={"name": "ci", "scope": "launch"}).json()["token"]
    script = dashboard.anonymous(Authorization=f"Bearer {token}")
    stored = script.put(path, content=archive, headers=OCTETS)
    assert (stored.status_code, stored.json()["origin"]) == (200, {}), "equal content names no stranger's path"
    forged = ana.put(f"{path}/origin", json=sent | {"path": "/forged"})
    assert (forged.status_code, forged.json()["origin"]["path"]) == (200, "/forged"), "an upload goes on"
    assert dashboard.http.get(path).json()["origin"]["path"] == "/x"
    dashboard.http.put(f"{path}/origin", json=sent | {"path": "/moved"})
    assert dashboard.http.get(path).json()["origin"]["path"] == "/moved"


def test_bytes_that_are_not_what_the_address_says_are_refused(dashboard, archive):
    answer = dashboard.http.put(f"/api/snapshots/{'0' * 64}", content=archive, headers=OCTETS)
    assert (answer.status_code, answer.json()["detail"]["field"]) == (422, "snapshot")
    assert dashboard.http.put("/api/snapshots/..%2f..%2fx", content=archive).status_code in (404, 405, 422)
    root = dashboard.service.files.root / "snapshots"
    assert [path.name for path in root.rglob("*")] == ["arriving"]


def tar_of(*members: tarfile.TarInfo, content: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "x" if kind == tarfile.LNKTYPE else ""
    return info


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive" * 100,
        tar_of(member("/etc/passwd")),
        tar_of(member("../x")),
        tar_of(member("a/../../x")),
        tar_of(member("x", tarfile.CHRTYPE)),
        tar_of(member("x", tarfile.FIFOTYPE)),
        tar_of(member("x", tarfile.LNKTYPE)),
        tar_of(member("é" * 200)),
    ],
    ids=range(9),
)
def test_an_archive_that_no_worker_would_unpack_is_refused(shared, content):
    answer = shared.http.put(f"/api/snapshots/{sha256_of(content)}", content=content, headers=OCTETS)
    assert (answer.status_code, answer.json()["detail"]["field"]) == (422, "snapshot"), answer.text
    assert shared.http.get(f"/api/snapshots/{sha256_of(content)}").status_code == 404


def test_more_than_the_limit_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("dashboard.api.code.OVERHEAD_BYTES", MIB)
    with running(tmp_path / "data", snapshot_limit_mb=1) as dashboard:
        assert dashboard.http.get("/api/info").json()["snapshot_limit_bytes"] == MIB
        slightly = tar_of(member("x", size=MIB + 1), content=b"x" * (MIB + 1))
        answer = dashboard.http.put(f"/api/snapshots/{sha256_of(slightly)}", content=slightly, headers=OCTETS)
        assert (answer.status_code, answer.json()["detail"]["field"]) == (422, "snapshot")
        assert dashboard.http.put(f"/api/snapshots/{'0' * 64}", content=b"x" * 3 * MIB).status_code == 413
        assert dashboard.http.post("/api/uploads?name=a.zip", content=b"x" * 3 * MIB).status_code == 413
        folder = write(tmp_path / "code", train_py="", big=b"x" * 2 * MIB)
        answer = dashboard.http.post("/api/runs", json={"target": str(folder), "entry": "train.py"})
        assert answer.status_code == 422 and "big 2 MiB" in answer.json()["detail"]["message"]
        assert dashboard.http.get("/api/runs").json() == []
        assert list((tmp_path / "data/files/snapshots/arriving").iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"snapshot": "0" * 64}, "snapshot"),
        ({"snapshot": "../../x"}, "snapshot"),
        ({"entry": "other.py"}, "entry"),
        ({"entry": None}, "entry"),
        ({"workdir": "/tmp"}, "workdir"),
        ({"target": "image_classifier"}, "target"),
    ],
)
def test_a_snapshot_that_cannot_be_launched_is_refused(dashboard, node, archive, spec, field):
    wanted = {"target": "/x", "entry": "train.py", "snapshot": put(dashboard, archive)} | spec
    answer = dashboard.http.post("/api/runs", json=wanted)
    assert (answer.status_code, answer.json()["detail"]["field"]) == (422, field)
    assert dashboard.http.get("/api/runs").json() == []


def test_the_last_run_takes_it_along(dashboard, node, archive):
    sha256 = put(dashboard, archive)
    first = launch(dashboard, sha256)
    end(dashboard, node, first)
    assert dashboard.http.get(f"/api/snapshots/{sha256}").status_code == 404
    assert not dashboard.service.snapshots.path(sha256).exists()


def test_uploaded_snapshot_waits_for_its_launch(dashboard, node, archive):
    sha256 = put(dashboard, archive)
    end(dashboard, node, launch(dashboard, put(dashboard, archive)))
    put(dashboard, archive)
    run_id = dashboard.launch()
    assert dashboard.http.head(f"/api/snapshots/{sha256}").status_code == 200
    end(dashboard, node, run_id)  # of another run: looks for what nobody needs
    assert dashboard.http.get(f"/api/snapshots/{sha256}").status_code == 200
    dashboard.service.snapshots._held[sha256] -= 7200
    dashboard.service.snapshots.forget_unused()
    assert dashboard.http.get(f"/api/snapshots/{sha256}").status_code == 404


def test_the_dashboard_makes_snapshots_of_its_own_disk(dashboard, node, tmp_path):
    code = write(tmp_path / "code", train_py="", model_py="")
    head = commit(code)
    run = dashboard.run(dashboard.launch(target=str(code / "train.py")))
    assert (run["spec"]["entry"], run["spec"]["target"]) == ("train.py", str(code / "train.py"))
    sha256 = run["spec"]["snapshot"]
    assert dashboard.http.get(f"/api/snapshots/{sha256}").json()["origin"]["commit"] == head
    assert names_in(dashboard.service.snapshots.path(sha256)) == ["model.py", "train.py"]
    again = dashboard.run(dashboard.launch(**run["spec"] | {"snapshot": None}))
    assert again["spec"] == run["spec"]


def test_a_repository_is_cloned_by_the_dashboard_or_by_the_command_line(dashboard, node, tmp_path, monkeypatch, capsys):
    code = write(tmp_path / "code.git", train_py="print(1)\n")
    first = commit(code)
    with git_over_https(tmp_path) as (url, server, certificate):
        monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
        address = {"target": f"{url}/code.git", "entry": "train.py", "ref": "main"}
        run = dashboard.run(dashboard.launch(**address))
        monkeypatch.setenv("RANKZERO_URL", dashboard.url)
        monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
        arguments = [
            address["target"],
            "--ref",
            "main",
            "--entry",
            "train.py",
            "--gpus-per-node",
            "1",
            "--json",
        ]
        assert main.run(["launch", *arguments]) == 0
        other = dashboard.run(json.loads(capsys.readouterr().out)["id"])
        asked = len(server.asked)
        assert main.run(["launch", *arguments, "--dry-run"]) == 0
        assert len(server.asked) == asked
        write(code, train_py="print(2)\n")
        commit(code, "second")
        again, now = (
            dashboard.run(dashboard.launch(**run["spec"] | {"snapshot": which}))
            for which in (run["spec"]["snapshot"], None)
        )
        missing = dashboard.http.post("/api/runs", json=address | {"ref": "none"})
    assert run["spec"] == other["spec"] == again["spec"] != now["spec"]
    origin = dashboard.http.get(f"/api/snapshots/{run['spec']['snapshot']}").json()["origin"]
    assert (origin["kind"], origin["commit"], origin["ref"]) == ("git", first, "main")
    assert (missing.status_code, missing.json()["detail"]["field"]) == (422, "ref")


@pytest.mark.parametrize("name", ["my train.py", "project.zip"])
def test_an_upload_becomes_a_snapshot_that_can_be_launched(dashboard, node, name):
    content = b"print(1)\n"
    if name.endswith(".zip"):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("project/train.py", "print(1)\n")
        content = buffer.getvalue()
    answer = dashboard.http.post("/api/uploads", params={"name": name}, content=content, headers=OCTETS)
    assert answer.status_code == 201
    answered = answer.json()
    spec = {"target": name, "entry": answered["scripts"][0], "snapshot": answered["snapshot"]}
    assert dashboard.run(dashboard.launch(**spec))["spec"]["snapshot"] == answered["snapshot"]
    assert dashboard.http.get(f"/api/snapshots/{answered['snapshot']}").json()["origin"]["path"] == name


def test_a_bad_upload_is_refused_in_a_sentence(shared):
    answer = shared.http.post("/api/uploads", params={"name": "a.zip"}, content=b"x", headers=OCTETS)
    assert answer.status_code == 422 and answer.json()["detail"]["field"] == "target"
    assert shared.http.post("/api/uploads", content=b"x", headers=OCTETS).status_code == 422


def test_only_our_own_page_may_upload_with_its_cookie(shared):
    cookie = shared.service.sessions.begin("owner", "token")
    headers = {"Cookie": f"{shared.service.credentials.cookie_name}={cookie}"} | OCTETS
    own = {"Origin": shared.url, "Sec-Fetch-Site": "same-origin"}
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    for more, status in ((own, 201), (foreign, 403), ({}, 403), (own | {"Content-Type": "text/plain"}, 415)):
        http = shared.anonymous(**headers | more)
        assert http.post("/api/uploads?name=a.py", content=b"pass").status_code == status, more


def test_a_preview_brings_nothing(shared, tmp_path):
    code = write(tmp_path / "code", train_py="")
    plan = shared.http.post("/api/preview", json={"target": str(code / "train.py")}).json()
    assert plan["commands"][0]["argv"][-1] == "<run-dir>/work/train.py"
    elsewhere = {"target": "/only/there/train.py", "gpus_per_node": 1}
    address = {"target": "https://example.invalid/a.git", "entry": "train.py", "gpus_per_node": 1}
    for path, spec, is_missed in (
        ("", elsewhere, True),
        ("?code_is_sent=true", elsewhere, False),
        ("", address, False),
    ):
        warnings = shared.http.post(f"/api/preview{path}", json=spec).json()["warnings"]
        assert any(warning.startswith("target: ") for warning in warnings) == is_missed
