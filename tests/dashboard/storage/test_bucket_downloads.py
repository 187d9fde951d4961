"""Checkpoints that people, nodes and the command line fetch from a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from cli.server.client import ServerClient
from cli.server.download import Transfer
from dashboard.settings import Settings
from db.tasks import desired_state
from domain.assignments import ResumeFrom
from domain.clients.addresses import Address
from tests.dashboard.running import running
from tests.dashboard.storage.bucket_stage import CONTENT, MIB, Stage
from tests.s3_server import Bucket, error

torch = pytest.importorskip("torch")


# -- downloads -----------------------------------------------------------------------------------
def test_who_asks_for_it_is_sent_to_the_bucket(stage: Stage) -> None:
    stage.spool.save(CONTENT, "step-10 of 3.bin")
    stage.spool.send()
    answer = stage.download(via="bucket")
    assert answer.status_code == 307
    assert answer.headers["x-checksum-sha256"] == stage.listed()[0]["sha256"]
    assert answer.headers["cache-control"] == "private, no-store"
    location = answer.headers["location"]
    assert location.startswith(stage.bucket.server.url) and "X-Amz-Expires=900" in location
    assert "a-secret" not in location
    got = httpx2.get(location, headers={"Range": "bytes=5-9"}, timeout=60)
    assert (got.status_code, got.content) == (206, stage.download().content[5:10])
    assert got.headers["content-disposition"] == "attachment; filename*=utf-8''step-10%20of%203.bin"
    head = stage.dashboard.http.head(f"/api/checkpoints/{stage.listed()[0]['id']}/file?via=bucket")
    assert (head.status_code, head.headers["content-length"]) == (200, str(stage.listed()[0]["size_bytes"]))


@pytest.mark.long
def test_the_setting_redirects_unless_somebody_asks_otherwise(tmp_path: Path, bucket: Bucket) -> None:
    with running(tmp_path / "data", checkpoints_url=bucket.url, checkpoints_redirect=True) as dashboard:
        node = dashboard.node()
        dashboard.launch()
        url = f"/api/checkpoints/{node.store_checkpoint(node.task(), b'weights')}/file"
        assert dashboard.http.get(url).status_code == 307
        assert dashboard.http.get(url, params={"via": "server"}).content == b"weights"


@pytest.mark.long
def test_downloads_say_what_is_wrong_with_the_bucket(stage: Stage) -> None:
    stage.spool.save(b"weights")
    stage.spool.send()
    stage.bucket.server.refuse = lambda method, path: error("403 Forbidden", "AccessDenied")
    answer = stage.download()
    assert answer.status_code == 503
    assert "denies the dashboard access" in answer.json()["detail"]["message"]


@pytest.mark.parametrize("is_reachable", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_node_that_resumes_fetches_from_the_bucket_or_through_the_server(
    stage: Stage, tmp_path: Path, is_reachable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.spool.save(CONTENT)
    stage.spool.send()
    (listed,) = stage.listed()
    node = stage.spool.node
    monkeypatch.setattr(desired_state, "live_assignments", lambda store, node_id, fence: [resuming])
    path = f"/api/worker/checkpoints/{listed['id']}/file"
    source = ResumeFrom(
        checkpoint_id=listed["id"],
        name=listed["name"],
        sha256=listed["sha256"],
        size_bytes=listed["size_bytes"],
        download_path=path,
    )
    resuming = _Resuming(source)
    if not is_reachable:
        monkeypatch.setattr(httpx2, "stream", _no_way)
    target = tmp_path / "resume.bin"
    whole = stage.download().content
    (tmp_path / "resume.bin.part").write_bytes(whole[:1000])
    node.client.download(source, target)
    assert target.read_bytes() == whole


class _Resuming:
    def __init__(self, source: ResumeFrom) -> None:
        self.resume_from = source


def _no_way(*_: Any, **__: Any) -> Any:
    raise httpx2.ConnectError("no route")


# -- commands --------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_reachable", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_command_fetches_from_the_bucket_and_goes_on_where_it_broke_off(
    stage: Stage, tmp_path: Path, is_reachable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.spool.save(CONTENT)
    stage.spool.send()
    (listed,) = stage.listed()
    whole = stage.download().content
    monkeypatch.setattr(stage.dashboard.service, "settings", _Redirecting(stage.dashboard.service.settings))
    if not is_reachable:
        monkeypatch.setattr(httpx2, "stream", _no_way)
    server = ServerClient(Address(stage.dashboard.url, stage.dashboard.token))
    (tmp_path / f".last.bin.{listed['sha256'][:12]}.part").write_bytes(whole[:MIB])
    Transfer(server, listed, tmp_path / "last.bin").run()
    assert (tmp_path / "last.bin").read_bytes() == whole


class _Redirecting:
    checkpoints_redirect = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._settings, name)
