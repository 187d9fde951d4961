"""Checkpoints that workers send, hand over on a shared disk, and fetch."""

from __future__ import annotations

import errno
import gc
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dashboard.storage import disk, files
from tests.dashboard.in_process import connected
from tests.dashboard.running import FakeNode, Running, running, sha256_of, wait_for
from worker.session.client import TaskRef
from worker.session.failures import (
    AttemptUnknown,
    ChecksumMismatch,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
)


def test_a_checkpoint_arrives_in_pieces_and_is_listed_once_whole(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    content = bytes(range(256)) * 4096
    place = node.client.offer_checkpoint(task, node.offer(task, content))
    assert (place.offset, place.complete) == (0, False)
    assert node.client.send_checkpoint(place.checkpoint_id, 0, content[:300_000]) == 300_000
    with pytest.raises(OffsetMismatch) as refusal:
        node.client.send_checkpoint(place.checkpoint_id, 0, content)
    assert refusal.value.have == 300_000
    again = node.client.offer_checkpoint(task, node.offer(task, content))
    assert again == place.model_copy(update={"offset": 300_000})
    node.client.send_checkpoint(place.checkpoint_id, 300_000, content[300_000:])
    node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
    node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
    (listed,) = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    assert listed["complete"]
    assert node.client.offer_checkpoint(task, node.offer(task, content)).complete


def test_a_checkpoint_with_another_sha256_starts_again(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    place = node.client.offer_checkpoint(task, node.offer(task, b"right"))
    node.client.send_checkpoint(place.checkpoint_id, 0, b"wrong")
    with pytest.raises(ChecksumMismatch):
        node.client.complete_checkpoint(place.checkpoint_id, sha256_of(b"right"))
    assert not dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()[0]["complete"]
    assert node.client.offer_checkpoint(task, node.offer(task, b"right")).offset == 0
    node.client.send_checkpoint(place.checkpoint_id, 0, b"right")
    node.client.complete_checkpoint(place.checkpoint_id, sha256_of(b"right"))


def test_more_bytes_than_were_offered_are_refused(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    place = node.client.offer_checkpoint(task, node.offer(task, b"12345"))
    with pytest.raises(RequestRefused, match="announced with 5 bytes"):
        node.client.send_checkpoint(place.checkpoint_id, 0, b"123456")


def test_a_worker_that_shares_the_disk_hands_a_snapshot_over_by_name(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    adopt = node.identity.adopt
    assert adopt is not None
    assert Path(adopt.proof_file).read_text() == adopt.proof
    place = node.client.offer_checkpoint(task, node.offer(task, b"weights"))
    placed = Path(adopt.directory) / f"adopted-{place.checkpoint_id}"
    placed.write_bytes(b"weights")
    node.client.complete_checkpoint(place.checkpoint_id, sha256_of(b"weights"), placed.name)
    assert not placed.exists()
    assert dashboard.http.get(f"/api/checkpoints/{place.checkpoint_id}/file").content == b"weights"


@pytest.mark.parametrize("name", ["../token", "..", "/etc/passwd", "a/b", "proof", "", "1.part", "x\0y"])
def test_only_plain_names_are_adopted(dashboard: Running, node: FakeNode, name: str) -> None:
    dashboard.launch()
    task = node.task()
    place = node.client.offer_checkpoint(task, node.offer(task, b"weights"))
    with pytest.raises(RequestRefused):
        node.client.complete_checkpoint(place.checkpoint_id, sha256_of(b"weights"), name)


def test_what_another_attempt_placed_is_neither_adopted_nor_deleted(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    assert node.identity.adopt is not None
    theirs = Path(node.identity.adopt.directory) / "adopted-4711"
    theirs.write_bytes(b"weights")
    for content in (b"weights", b"others"):
        place = node.client.offer_checkpoint(task, node.offer(task, content))
        with pytest.raises(RequestRefused):
            node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content), theirs.name)
    assert theirs.read_bytes() == b"weights"


def test_a_link_is_not_adopted(dashboard: Running, node: FakeNode, tmp_path: Path) -> None:
    dashboard.launch()
    task = node.task()
    assert node.identity.adopt is not None
    (tmp_path / "secret").write_bytes(b"weights")
    place = node.client.offer_checkpoint(task, node.offer(task, b"weights"))
    link = Path(node.identity.adopt.directory) / f"adopted-{place.checkpoint_id}"
    link.symlink_to(tmp_path / "secret")
    with pytest.raises(ChecksumMismatch):
        node.client.complete_checkpoint(place.checkpoint_id, sha256_of(b"weights"), link.name)
    assert (tmp_path / "secret").exists()


def test_a_node_that_resumes_fetches_the_checkpoint(dashboard: Running, node: FakeNode, tmp_path: Path) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.store_checkpoint(task, b"weights")
    node.report(task, "stopped")
    assert dashboard.http.post(f"/api/runs/{run_id}/resume").json()["attempt"] == 2
    wanted = node.assignment()
    assert wanted.resume_from is not None
    node.client.download(wanted.resume_from, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"weights"
    with pytest.raises(AttemptUnknown):
        node.report(TaskRef(999, 0, "abcdefghij/1/0123456789abcdef"), "running")


def test_a_full_disk_refuses_a_checkpoint_before_its_first_byte(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    place = node.client.offer_checkpoint(task, node.offer(task, b"weights"))
    dashboard.service.files._reserve_bytes = 900 << 40
    http = dashboard.anonymous(Authorization=f"Bearer {node.client.token}")
    answer = http.put(f"/api/worker/checkpoints/{place.checkpoint_id}/data?offset=0", content=b"weights")
    assert answer.status_code == 507
    assert answer.json()["detail"]["message"] == (
        "The server's disk has nothing free beyond a reserve of 900 TiB; 7 B do not fit. "
        "Free some space there; the upload then continues automatically."
    )


MIB = 1024 * 1024


def begun(node: FakeNode, checkpoint_id: int, offset: int, announced: int, content: bytes) -> socket.socket:
    """A request that sends fewer bytes than it announces, and stays open."""
    address = urlsplit(node.client.url)
    connection = connected(node.client.url)
    head = [
        f"PUT /api/worker/checkpoints/{checkpoint_id}/data?offset={offset} HTTP/1.1",
        f"Host: {address.netloc}",
        f"Authorization: Bearer {node.client.token}",
        f"Content-Length: {announced}",
    ]
    connection.sendall("\r\n".join([*head, "", ""]).encode() + content)
    return connection


def stored(dashboard: Running, checkpoint_id: int) -> bytes:
    return dashboard.service.files.checkpoint(checkpoint_id).read_bytes()


def test_bytes_before_a_broken_connection_stay(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    content = os.urandom(10 * MIB)
    place = node.client.offer_checkpoint(task, node.offer(task, content))
    begun(node, place.checkpoint_id, 0, len(content), content[: 9 * MIB + 5]).close()

    def offset() -> int:
        return node.client.offer_checkpoint(task, node.offer(task, content)).offset

    wait_for(lambda: offset() == 9 * MIB + 5, "the bytes that arrived")
    with pytest.raises(OffsetMismatch):
        node.client.send_checkpoint(place.checkpoint_id, 8 * MIB, content[8 * MIB :])
    node.client.send_checkpoint(place.checkpoint_id, 9 * MIB + 5, content[9 * MIB + 5 :])
    node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
    assert stored(dashboard, place.checkpoint_id) == content


def test_a_newer_request_takes_over_from_one_that_hangs(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    content = os.urandom(10 * MIB)
    place = node.client.offer_checkpoint(task, node.offer(task, content))
    with begun(node, place.checkpoint_id, 0, len(content), os.urandom(5 * MIB)) as hanging:
        arriving = dashboard.service.files.arriving(place.checkpoint_id)
        wait_for(lambda: arriving.exists() and arriving.stat().st_size, "a piece of the first request")
        assert node.client.offer_checkpoint(task, node.offer(task, content)).offset == 0
        node.client.send_checkpoint(place.checkpoint_id, 0, content[: 6 * MIB])
        hanging.sendall(os.urandom(5 * MIB))
        assert b" 409 " in hanging.recv(4096)
    node.client.send_checkpoint(place.checkpoint_id, 6 * MIB, content[6 * MIB :])
    node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
    assert stored(dashboard, place.checkpoint_id) == content


def test_abandoned_upload_leaves_nothing_in_memory(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    place = node.client.offer_checkpoint(task, node.offer(task, b"whole"))
    assert node.client.send_checkpoint(place.checkpoint_id, 0, b"wh") == 2
    wait_for(lambda: gc.collect() >= 0 and not dashboard.service.uploads, "the request to be forgotten")


def test_a_write_that_fails_keeps_what_was_written_before_it(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard.launch()
    task = node.task()
    content = os.urandom(10 * MIB)
    place = node.client.offer_checkpoint(task, node.offer(task, content))
    write = disk.write_past_cache

    def fails(path: Path, offset: int, piece: memoryview) -> None:
        if offset == 4 * MIB:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, offset, piece)

    monkeypatch.setattr(disk, "write_past_cache", fails)
    with pytest.raises(RequestFailed):
        node.client.send_checkpoint(place.checkpoint_id, 0, content)
    monkeypatch.undo()
    again = node.client.offer_checkpoint(task, node.offer(task, content))
    assert again.offset == 4 * MIB
    node.client.send_checkpoint(place.checkpoint_id, 4 * MIB, content[4 * MIB :])
    node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
    assert stored(dashboard, place.checkpoint_id) == content


@pytest.mark.parametrize("is_right", [True, False])
def test_bytes_that_an_earlier_process_received_are_read_again(tmp_path: Path, is_right: bool) -> None:
    content = os.urandom(2 * MIB)
    with running(tmp_path / "data") as first:
        node = first.node()
        first.launch()
        task = node.task()
        offer = node.offer(task, content)
        place = node.client.offer_checkpoint(task, offer)
        node.client.send_checkpoint(place.checkpoint_id, 0, content[:MIB])
    if not is_right:
        arriving = first.service.files.arriving(place.checkpoint_id)
        arriving.write_bytes(bytes(MIB))
    with running(tmp_path / "data") as second:
        client = second.client(node.client.token)
        assert client.offer_checkpoint(task, offer).offset == MIB
        client.send_checkpoint(place.checkpoint_id, MIB, content[MIB:])
        if is_right:
            client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
            assert stored(second, place.checkpoint_id) == content
        else:
            with pytest.raises(ChecksumMismatch):
                client.complete_checkpoint(place.checkpoint_id, sha256_of(content))


def test_no_more_is_said_to_be_durable_than_was_synced(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard.launch()
    task = node.task()
    content = os.urandom(6 * MIB)
    place = node.client.offer_checkpoint(task, node.offer(task, content))
    seen = []

    def sync(path: Path) -> None:
        seen.append(node.client.offer_checkpoint(task, node.offer(task, content)).offset)
        files.sync(path)

    monkeypatch.setattr(disk, "sync", sync)
    assert node.client.send_checkpoint(place.checkpoint_id, 0, content[: 5 * MIB]) == 5 * MIB
    assert node.client.send_checkpoint(place.checkpoint_id, 5 * MIB, content[5 * MIB :]) == 6 * MIB
    assert seen == [0, 5 * MIB]
