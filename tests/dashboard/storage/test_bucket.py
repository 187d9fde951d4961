"""Checkpoints in a bucket: what the worker's own code brings there, what may go wrong, and what is left behind."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cli.commands.installation import system
from dashboard.clock import AnchoredTime
from dashboard.settings import Settings
from tests.dashboard.running import running, sha256_of, wait_for
from tests.dashboard.storage.bucket_stage import CONTENT, Stage
from tests.s3_server import Bucket, error
from worker.session.failures import ServerAway


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
    assert answer.headers["x-checksum-sha256"] == hashlib.sha256(answer.content).hexdigest() == listed["sha256"]


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
def test_without_a_way_to_the_bucket_the_server_passes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoWay(httpx2.Client):
        def put(self, *_: Any, **__: Any) -> httpx2.Response:
            raise httpx2.ConnectTimeout("no route")

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
def test_error_of_the_bucket_stands_on_the_checkpoint(stage: Stage, status: str, code: str, words: str) -> None:
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

    class Tampering(httpx2.Client):
        def put(self, url: Any, *, content: Any, **more: Any) -> httpx2.Response:
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


def test_a_crash_between_completion_and_listing_is_mended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    from db.checkpoints import checkpoint_reports

    stage.spool.save(CONTENT)

    def crash(*_: Any) -> list[int]:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_reports, "completed", crash)
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
    node, task = stage.spool.node, stage.spool.task
    for content in (b"", b"x"):
        place = node.client.offer_checkpoint(task, node.offer(task, content, f"work/{len(content)}.pt"))
        if content:
            node.client.send_checkpoint(place.checkpoint_id, 0, content)
        node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
        assert stage.dashboard.http.get(f"/api/checkpoints/{place.checkpoint_id}/file").content == content


def test_overwritten_or_deleted_checkpoint_leaves_the_bucket(stage: Stage) -> None:
    stage.spool.save(CONTENT)
    stage.spool.send()
    stage.spool.save(b"newer")
    stage.spool.send()
    tick = stage.dashboard.service.storages.sweep
    wait_for(lambda: tick() or len(stage.bucket.keys) == 1, "the older version to go")
    stage.spool.save(CONTENT + b"never whole")
    stage.spool.send(lambda: not stage.bucket.uploads)
    assert len(stage.bucket.uploads) == 1
    stage.spool.node.report(stage.spool.task, "failed", exit_code=1)
    stage.bucket.server.stop()
    try:
        assert stage.dashboard.http.delete(f"/api/runs/{stage.run_id}?now=true").status_code == 200
    finally:
        stage.bucket.server.start()
    storages = stage.dashboard.service.storages

    def is_empty() -> bool:
        storages._sweep_from = 0.0
        storages.sweep()
        return not stage.bucket.keys and not stage.bucket.uploads

    wait_for(is_empty, "the bucket to be empty")


class InTwoDays(AnchoredTime):
    def __call__(self) -> float:
        return super().__call__() + 2 * 24 * 3600


@pytest.mark.long
def test_uploads_of_attempts_that_ended_long_ago_are_given_up(stage: Stage) -> None:
    stage.spool.save(CONTENT)
    stage.spool.send(lambda: not stage.bucket.uploads)
    stage.spool.node.report(stage.spool.task, "failed", exit_code=1)
    storages = stage.dashboard.service.storages
    storages._delete_discarded()
    assert len(stage.bucket.uploads) == 1
    storages._clock = storages.bucket._clock = InTwoDays()
    storages._delete_discarded()
    assert stage.bucket.uploads == []
    stage.spool.send()  # the node was only away: it begins anew
    assert stage.listed()[0]["complete"]


# -- settings --------------------------------------------------------------------------------------
@pytest.mark.long
def test_old_checkpoints_stay_where_they_were(tmp_path: Path, bucket: Bucket) -> None:
    ids: list[int] = []
    with running(tmp_path / "data") as dashboard:
        node = dashboard.node()
        dashboard.launch()
        task, token = node.task(), node.client.token
    for url in (None, bucket.url, None):
        with running(tmp_path / "data", checkpoints_url=url) as dashboard:
            node.client = dashboard.client(token)
            ids.append(node.store_checkpoint(task, f"weights {len(ids)}".encode(), f"work/{len(ids)}.pt"))
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
            stage.spool.node.report(stage.spool.task, "running")
        assert time.monotonic() - began < 15
    finally:
        answers.set()
        for thread in waiting:
            thread.join()


def _try(send: Callable[[], None]) -> None:
    with suppress(ServerAway):
        send()


def test_the_doctor_tries_the_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    assert system._checkpoints() == (True, "in the directory of files.")
    monkeypatch.setenv("RANKZERO_CHECKPOINTS_URL", bucket.url)
    ok, message = system._checkpoints()
    assert ok and "read and written; it verifies no checksums" in message
    bucket.server.is_strict = True
    assert "it verifies each part" in system._checkpoints()[1]
    assert bucket.keys == bucket.uploads == []
    bucket.server.refuse = lambda method, path: error("403 Forbidden", "AccessDenied")
    assert system._checkpoints()[0] is False
    monkeypatch.setenv("RANKZERO_CHECKPOINTS_URL", "s3://no-such-bucket-anywhere/x")
    bucket.server.refuse = lambda method, path: None
    assert "does not exist" in system._checkpoints()[1]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert "has no credentials" in system._checkpoints()[1]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("botocore", "botocore.config", "botocore.exceptions", "botocore.session"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("RANKZERO_CHECKPOINTS_URL", "s3://bucket/runs")
    ok, message = system._checkpoints()
    assert not ok and "pip install 'rankzero[s3]'" in message
