"""Checkpoints in a bucket: what the worker's own code brings there, what may go wrong, and what is left behind."""

from __future__ import annotations

import hashlib
import io
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.server.client import Address, ServerClient
from cli.server.transfer import Transfer
from cli.up import doctor
from dashboard.settings import Settings
from db.queries import desired_state
from domain.spec import ResumeFrom
from tests.dashboard.running import FakeNode, Running, running, wait_for
from tests.s3_server import Bucket, error
from worker.checkpoints.upload import CheckpointUploader
from worker.checkpoints.watching import CheckpointWatch
from worker.session.client import Client
from worker.session.failures import ServerAway

torch = pytest.importorskip("torch")
MIB = 1024 * 1024
PART_BYTES = 5 * MIB
"""No bucket takes smaller ones, but for the last."""
CONTENT = random.Random(7).randbytes(2 * PART_BYTES + 100_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Spool:
    """One attempt's checkpoints on a node, and their way to the server."""

    def __init__(self, folder: Path, node: FakeNode) -> None:
        self.folder, self.node, self.part = folder, node, node.part()
        (folder / "work").mkdir(parents=True)
        self.restart()

    def restart(self) -> None:
        """As a worker does that was killed."""
        self._watch = CheckpointWatch([self.folder / "work"], self.folder / "outbox", quiet_s=0)
        self.uploader = CheckpointUploader(self._watch, self.node.client, self.part, "run/1")

    def save(self, content: bytes, name: str = "last.bin") -> None:
        """The training writes a checkpoint, and the worker copies it."""
        path = self.folder / "work" / name
        path.write_bytes(pickle.dumps(content))
        self.take()

    def take(self) -> None:
        """Copy what has changed."""
        self._watch.step(time.monotonic(), final=True)
        assert self._watch.pending()

    def send(self, may_go_on: Callable[[], bool] = lambda: True) -> None:
        self.uploader.send(None, may_go_on)

    def send_until_done(self) -> None:
        """As the worker's loop does, whatever is away meanwhile."""

        def sent() -> bool:
            try:
                self.send()
            except ServerAway:
                return False
            return not self._watch.pending()

        wait_for(sent, "the bucket to have everything")


@dataclass
class Stage:
    """A dashboard whose checkpoints go to a bucket, and a node with a run."""

    dashboard: Running
    bucket: Bucket
    spool: Spool
    run_id: str

    def listed(self) -> list[dict[str, Any]]:
        return list(self.dashboard.http.get(f"/api/runs/{self.run_id}/checkpoints").json())

    def download(self, **params: str) -> httpx.Response:
        return self.dashboard.http.get(f"/api/checkpoints/{self.listed()[0]['id']}/file", params=params)

    def history(self) -> str:
        return str(self.dashboard.http.get(f"/api/runs/{self.run_id}/history").json())


@pytest.fixture
def stage(tmp_path: Path, bucket: Bucket) -> Iterator[Stage]:
    with running(tmp_path / "data", checkpoints_url=bucket.url) as dashboard:
        dashboard.service.storages.bucket.least_part_bytes = PART_BYTES
        node = dashboard.node()
        run_id = dashboard.launch()
        yield Stage(dashboard, bucket, Spool(tmp_path / "attempt", node), run_id)


def test_a_checkpoint_goes_from_the_node_to_the_bucket_in_parts(stage: Stage) -> None:
    stage.spool.save(CONTENT)
    stage.spool.send()
    (listed,) = stage.listed()
    assert listed["complete"] and listed["trouble"] is None
    (key,) = stage.bucket.keys
    assert key.startswith(f"runs/{stage.run_id}/")
    assert hashlib.sha256(stage.bucket.content(key)).hexdigest() == listed["sha256"]
    assert stage.bucket.uploads == []
    files = stage.dashboard.service.files
    assert not any(files.checkpoints.iterdir())
    assert not [path for path in files.incoming.iterdir() if path.name != "proof"]
    answer = stage.download()
    assert (
        answer.headers["x-checksum-sha256"] == hashlib.sha256(answer.content).hexdigest() == listed["sha256"]
    )


@pytest.mark.parametrize("is_strict", [pytest.param(False, marks=pytest.mark.long), True])
def test_an_interrupted_upload_goes_on_behind_the_last_part(stage: Stage, is_strict: bool) -> None:
    stage.bucket.server.is_strict = is_strict
    stage.spool.save(CONTENT)
    seen = 0

    def until_two_parts_are_there() -> bool:
        nonlocal seen
        seen += 1
        return seen < 12

    stage.spool.send(until_two_parts_are_there)
    (listed,) = stage.listed()
    assert not listed["complete"]
    (key,) = stage.bucket.uploads
    before = stage.bucket.parts(key)
    stage.bucket.server.asked.clear()
    stage.spool.restart()
    stage.spool.send()
    assert stage.listed()[0]["complete"]
    whole_at_the_front = next((n for n in range(4) if n + 1 not in before), 3)
    assert stage.bucket.server.asked["PUT part"] == 3 - whole_at_the_front
    assert stage.download().content == stage.bucket.content(key)


@pytest.mark.long
def test_without_a_way_to_the_bucket_the_server_passes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoWay(httpx.Client):
        def put(self, *_: Any, **__: Any) -> httpx.Response:
            raise httpx.ConnectTimeout("no route")

    monkeypatch.setattr(stage.spool.uploader.bucket, "http", NoWay())
    stage.spool.save(CONTENT)
    stage.spool.send()
    assert stage.listed()[0]["complete"]
    assert stage.bucket.server.asked["PUT part"] >= 3
    assert len(stage.download().content) == stage.listed()[0]["size_bytes"]


def test_a_bucket_that_is_away_loses_nothing_and_is_told(stage: Stage) -> None:
    stage.spool.save(CONTENT)
    stage.bucket.server.stop()
    try:
        with pytest.raises(ServerAway, match="cannot be reached"):
            stage.spool.send()
        (listed,) = stage.listed()
        assert not listed["complete"] and "cannot be reached" in listed["trouble"]
        assert "last.bin waits: The bucket" in stage.history()
    finally:
        stage.bucket.server.start()
    stage.spool.send_until_done()
    (listed,) = stage.listed()
    assert listed["complete"] and listed["trouble"] is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ("403 Forbidden", "AccessDenied", "denies the dashboard access"),
        ("404 Not Found", "NoSuchBucket", "does not exist"),
        ("503 Slow Down", "SlowDown", "answered SlowDown"),
    ],
)
def test_what_the_bucket_says_stands_on_the_checkpoint(
    stage: Stage, status: str, code: str, words: str
) -> None:
    stage.spool.save(b"weights")
    stage.bucket.server.refuse = lambda method, path: error(status, code) if "upload" in path else None
    with pytest.raises(ServerAway, match=words):
        stage.spool.send()
    assert words in stage.listed()[0]["trouble"]
    stage.bucket.server.refuse = lambda method, path: None
    stage.spool.send_until_done()
    assert stage.listed()[0]["trouble"] is None


def tampering(stage: Stage) -> None:
    """From now on, a part changes on its way to the bucket."""

    class Tampering(httpx.Client):
        def put(self, url: Any, *, content: Any, **more: Any) -> httpx.Response:
            body = b"".join(content)
            return super().put(url, content=b"X" + body[1:], **more)

    stage.spool.uploader.bucket.http = stage.dashboard.closing.enter_context(Tampering())


@pytest.mark.parametrize("is_strict", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_part_that_changed_on_its_way_is_refused_and_sent_again(stage: Stage, is_strict: bool) -> None:
    stage.bucket.server.is_strict = is_strict
    stage.spool.save(CONTENT)
    tampering(stage)
    stage.spool.send()
    assert not [each for each in stage.listed() if each["complete"]]
    assert stage.bucket.keys == []
    stage.spool.restart()
    stage.spool.take()
    stage.spool.send_until_done()
    assert len([each for each in stage.listed() if each["complete"]]) == 1


@pytest.mark.long
@pytest.mark.parametrize(("is_strict", "reads"), [(True, 0), (False, 1)])
def test_only_a_bucket_that_checks_no_parts_is_read_back(
    stage: Stage, is_strict: bool, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.bucket.server.is_strict = is_strict
    storages, read = stage.dashboard.service.storages, []
    as_ever = storages.s3.read
    monkeypatch.setattr(storages.s3, "read", lambda at, size: (read.append(at), as_ever(at, size))[1])
    stage.spool.save(CONTENT)
    stage.spool.send()
    assert stage.listed()[0]["complete"]
    assert len(read) == reads


def test_a_crash_between_completion_and_listing_is_mended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from db.reports import checkpoints

    stage.spool.save(CONTENT)

    def crash(*_: Any) -> list[int]:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "completed", crash)
        with pytest.raises(ServerAway):
            stage.spool.send()
    assert stage.bucket.uploads == [] and len(stage.bucket.keys) == 1
    assert not stage.listed()[0]["complete"]
    stage.bucket.server.asked.clear()
    stage.spool.send()
    assert stage.listed()[0]["complete"]
    assert stage.bucket.server.asked["PUT part"] == 0


@pytest.mark.long
def test_an_upload_that_the_bucket_has_forgotten_begins_anew(stage: Stage) -> None:
    stage.spool.save(CONTENT)
    stage.spool.send(lambda: not stage.bucket.uploads)
    (key,) = stage.bucket.uploads
    (upload,) = stage.bucket.client.list_multipart_uploads(Bucket=stage.bucket.name)["Uploads"]
    stage.bucket.client.abort_multipart_upload(Bucket=stage.bucket.name, Key=key, UploadId=upload["UploadId"])
    stage.spool.send_until_done()
    assert stage.listed()[0]["complete"]


@pytest.mark.long
def test_an_empty_file_and_a_small_one_are_stored(stage: Stage) -> None:
    node, part = stage.spool.node, stage.spool.part
    for content in (b"", b"x"):
        place = node.client.offer_checkpoint(part, node.offer(part, content, f"work/{len(content)}.pt"))
        if content:
            node.client.send_checkpoint(place.checkpoint_id, 0, content)
        node.client.complete_checkpoint(place.checkpoint_id)
        assert stage.dashboard.http.get(f"/api/checkpoints/{place.checkpoint_id}/file").content == content


def test_what_is_overwritten_or_deleted_leaves_the_bucket(stage: Stage) -> None:
    stage.spool.save(CONTENT)
    stage.spool.send()
    stage.spool.save(b"newer")
    stage.spool.send()
    tick = stage.dashboard.service.storages.sweep
    wait_for(lambda: tick() or len(stage.bucket.keys) == 1, "the older version to go")
    stage.spool.save(CONTENT + b"never whole")
    stage.spool.send(lambda: not stage.bucket.uploads)
    assert len(stage.bucket.uploads) == 1
    stage.spool.node.report(stage.spool.part, "failed", exit_code=1)
    stage.bucket.server.stop()
    try:
        assert stage.dashboard.http.delete(f"/api/runs/{stage.run_id}").status_code == 200
    finally:
        stage.bucket.server.start()
    storages = stage.dashboard.service.storages

    def is_empty() -> bool:
        storages._sweep_from = 0.0
        storages.sweep()
        return not stage.bucket.keys and not stage.bucket.uploads

    wait_for(is_empty, "the bucket to be empty")


@pytest.mark.long
def test_uploads_of_attempts_that_ended_long_ago_are_given_up(stage: Stage) -> None:
    stage.spool.save(CONTENT)
    stage.spool.send(lambda: not stage.bucket.uploads)
    stage.spool.node.report(stage.spool.part, "failed", exit_code=1)
    storages, now = stage.dashboard.service.storages, time.time()
    storages._delete_discarded()
    assert len(stage.bucket.uploads) == 1
    storages._clock = storages.bucket._clock = lambda: now + 2 * 24 * 3600
    storages._delete_discarded()
    assert stage.bucket.uploads == []
    stage.spool.send()  # the node was only away: it begins anew
    assert stage.listed()[0]["complete"]


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
    got = httpx.get(location, headers={"Range": "bytes=5-9"})
    assert (got.status_code, got.content) == (206, stage.download().content[5:10])
    assert got.headers["content-disposition"] == "attachment; filename*=utf-8''step-10%20of%203.bin"
    head = stage.dashboard.http.head(f"/api/checkpoints/{stage.listed()[0]['id']}/file?via=bucket")
    assert (head.status_code, head.headers["content-length"]) == (200, str(stage.listed()[0]["size_bytes"]))


@pytest.mark.long
def test_the_setting_redirects_unless_somebody_asks_otherwise(tmp_path: Path, bucket: Bucket) -> None:
    with running(tmp_path / "data", checkpoints_url=bucket.url, checkpoints_redirect=True) as dashboard:
        node = dashboard.node()
        dashboard.launch()
        url = f"/api/checkpoints/{node.store_checkpoint(node.part(), b'weights')}/file"
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
    monkeypatch.setattr(desired_state, "assignments", lambda store, node_id: [resuming])
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
        monkeypatch.setattr(httpx, "stream", _no_way)
    target = tmp_path / "resume.bin"
    whole = stage.download().content
    (tmp_path / "resume.bin.part").write_bytes(whole[:1000])
    node.client.download(source, target)
    assert target.read_bytes() == whole


class _Resuming:
    def __init__(self, source: ResumeFrom) -> None:
        self.resume_from = source


def _no_way(*_: Any, **__: Any) -> Any:
    raise httpx.ConnectError("no route")


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.long
def test_old_checkpoints_stay_where_they_were(tmp_path: Path, bucket: Bucket) -> None:
    ids: list[int] = []
    with running(tmp_path / "data") as dashboard:
        node = dashboard.node()
        dashboard.launch()
        part, token = node.part(), node.client.token
    for url in (None, bucket.url, None):
        with running(tmp_path / "data", checkpoints_url=url) as dashboard:
            node.client = dashboard.closing.enter_context(closing(Client(dashboard.url, token)))
            ids.append(node.store_checkpoint(part, f"weights {len(ids)}".encode(), f"work/{len(ids)}.pt"))
            for number, checkpoint_id in enumerate(ids):
                got = dashboard.http.get(f"/api/checkpoints/{checkpoint_id}/file").content
                assert got == f"weights {number}".encode()
    assert len(bucket.keys) == 1


@pytest.mark.parametrize("url", ["bucket/runs", "http://bucket", "s3://", "gs://bucket"])
def test_an_address_that_names_no_bucket_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValueError, match="must be s3://BUCKET"):
        Settings(data=tmp_path, checkpoints_url=url)


@pytest.mark.long
def test_a_hanging_bucket_does_not_hold_up_heartbeats(stage: Stage) -> None:
    stage.spool.save(b"weights")
    answers = threading.Event()
    stage.bucket.server.refuse = lambda method, path: answers.wait(20) and None  # type: ignore[func-returns-value]
    waiting = [threading.Thread(target=_try, args=(stage.spool.send,)) for _ in range(6)]
    for thread in waiting:
        thread.start()
    try:
        began = time.monotonic()
        for _ in range(20):
            stage.spool.node.report(stage.spool.part, "running")
        assert time.monotonic() - began < 15
    finally:
        answers.set()
        for thread in waiting:
            thread.join()


def _try(send: Callable[[], None]) -> None:
    with suppress(ServerAway):
        send()


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
        monkeypatch.setattr(httpx, "stream", _no_way)
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


def test_the_doctor_tries_the_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._checkpoints() == (True, "in the directory of files.")
    monkeypatch.setenv("RANKZERO_CHECKPOINTS_URL", bucket.url)
    ok, message = doctor._checkpoints()
    assert ok and "read and written; it checks no sums" in message
    bucket.server.is_strict = True
    assert "it checks each part" in doctor._checkpoints()[1]
    assert bucket.keys == bucket.uploads == []
    bucket.server.refuse = lambda method, path: error("403 Forbidden", "AccessDenied")
    assert doctor._checkpoints()[0] is False
    monkeypatch.setenv("RANKZERO_CHECKPOINTS_URL", "s3://no-such-bucket-anywhere/x")
    bucket.server.refuse = lambda method, path: None
    assert "does not exist" in doctor._checkpoints()[1]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert "has no credentials" in doctor._checkpoints()[1]


def test_another_form_is_made_from_a_copy_that_does_not_stay(stage: Stage) -> None:
    buffer = io.BytesIO()
    torch.save({"module.w": torch.ones(3)}, buffer)
    node, part = stage.spool.node, stage.spool.part
    checkpoint_id = node.store_checkpoint(part, buffer.getvalue(), "work/last.pt")
    url = f"/api/checkpoints/{checkpoint_id}/file"
    answer = stage.dashboard.http.get(url, params={"prefix": "strip"})
    assert list(torch.load(io.BytesIO(answer.content), weights_only=True)) == ["w"]
    left = [path.name for path in stage.dashboard.service.files.rewritten.iterdir()]
    assert len(left) == 2 and not [name for name in left if "copy" in name]
    stage.bucket.server.stop()
    try:
        assert stage.dashboard.http.get(url, params={"prefix": "strip"}).content == answer.content
        refused = stage.dashboard.http.get(url, params={"format": "safetensors"})
        assert refused.status_code == 503 and "cannot be reached" in refused.json()["detail"]["message"]
    finally:
        stage.bucket.server.start()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("botocore", "botocore.config", "botocore.exceptions", "botocore.session"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("RANKZERO_CHECKPOINTS_URL", "s3://bucket/runs")
    ok, message = doctor._checkpoints()
    assert not ok and "pip install 'rankzero[s3]'" in message
