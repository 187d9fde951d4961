"""Checkpoints that workers send, hand over on a shared disk, and fetch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.running import FakeNode, Running
from worker.session.client import TaskRef
from worker.session.failures import (
    AttemptUnknown,
    ChecksumMismatch,
    OffsetMismatch,
    RequestRefused,
)


def test_a_checkpoint_arrives_in_pieces_and_is_listed_once_whole(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    part = node.part()
    content = bytes(range(256)) * 4096
    place = node.client.offer_checkpoint(part, node.offer(part, content))
    assert (place.offset, place.complete) == (0, False)
    assert node.client.send_checkpoint(place.checkpoint_id, 0, content[:300_000]) == 300_000
    with pytest.raises(OffsetMismatch) as refusal:
        node.client.send_checkpoint(place.checkpoint_id, 0, content)
    assert refusal.value.have == 300_000
    again = node.client.offer_checkpoint(part, node.offer(part, content))
    assert again == place.model_copy(update={"offset": 300_000})
    node.client.send_checkpoint(place.checkpoint_id, 300_000, content[300_000:])
    node.client.complete_checkpoint(place.checkpoint_id)
    node.client.complete_checkpoint(place.checkpoint_id)
    (listed,) = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    assert listed["complete"]
    assert node.client.offer_checkpoint(part, node.offer(part, content)).complete


def test_a_checkpoint_with_another_sha256_starts_again(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    part = node.part()
    place = node.client.offer_checkpoint(part, node.offer(part, b"right"))
    node.client.send_checkpoint(place.checkpoint_id, 0, b"wrong")
    with pytest.raises(ChecksumMismatch):
        node.client.complete_checkpoint(place.checkpoint_id)
    assert not dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()[0]["complete"]
    assert node.client.offer_checkpoint(part, node.offer(part, b"right")).offset == 0
    node.client.send_checkpoint(place.checkpoint_id, 0, b"right")
    node.client.complete_checkpoint(place.checkpoint_id)


def test_more_bytes_than_were_offered_are_refused(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    part = node.part()
    place = node.client.offer_checkpoint(part, node.offer(part, b"12345"))
    with pytest.raises(RequestRefused, match="announced with 5 bytes"):
        node.client.send_checkpoint(place.checkpoint_id, 0, b"123456")


def test_a_worker_that_shares_the_disk_hands_a_snapshot_over_by_name(
    dashboard: Running, node: FakeNode
) -> None:
    dashboard.launch()
    part = node.part()
    adopt = node.identity.adopt
    assert adopt is not None
    assert Path(adopt.proof_file).read_text() == adopt.proof
    (Path(adopt.directory) / "snapshot-1").write_bytes(b"weights")
    place = node.client.offer_checkpoint(part, node.offer(part, b"weights"))
    node.client.complete_checkpoint(place.checkpoint_id, "snapshot-1")
    assert not (Path(adopt.directory) / "snapshot-1").exists()
    assert dashboard.http.get(f"/api/checkpoints/{place.checkpoint_id}/file").content == b"weights"


@pytest.mark.parametrize("name", ["../token", "..", "/etc/passwd", "a/b", "proof", "", "1.part", "x\0y"])
def test_only_plain_names_are_adopted(dashboard: Running, node: FakeNode, name: str) -> None:
    dashboard.launch()
    part = node.part()
    place = node.client.offer_checkpoint(part, node.offer(part, b"weights"))
    with pytest.raises(RequestRefused):
        node.client.complete_checkpoint(place.checkpoint_id, name)


def test_a_link_is_not_adopted(dashboard: Running, node: FakeNode, tmp_path: Path) -> None:
    dashboard.launch()
    part = node.part()
    assert node.identity.adopt is not None
    (tmp_path / "secret").write_bytes(b"weights")
    (Path(node.identity.adopt.directory) / "link").symlink_to(tmp_path / "secret")
    place = node.client.offer_checkpoint(part, node.offer(part, b"weights"))
    with pytest.raises(ChecksumMismatch):
        node.client.complete_checkpoint(place.checkpoint_id, "link")
    assert (tmp_path / "secret").exists()


def test_a_node_that_resumes_fetches_the_checkpoint(
    dashboard: Running, node: FakeNode, tmp_path: Path
) -> None:
    run_id = dashboard.launch()
    part = node.part()
    node.store_checkpoint(part, b"weights")
    node.report(part, "stopped")
    assert dashboard.http.post(f"/api/runs/{run_id}/resume").json()["attempt"] == 2
    wanted = node.assignment()
    assert wanted.resume_from is not None
    node.client.download(wanted.resume_from, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"weights"
    with pytest.raises(AttemptUnknown):
        node.report(TaskRef(999, 0, "abcdefghij/1/0123456789abcdef"), "running")


def test_a_full_disk_refuses_a_checkpoint_before_its_first_byte(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    part = node.part()
    place = node.client.offer_checkpoint(part, node.offer(part, b"weights"))
    dashboard.service.files._reserve_bytes = 1 << 60
    http = dashboard.anonymous(Authorization=f"Bearer {node.client.token}")
    answer = http.put(f"/api/worker/checkpoints/{place.checkpoint_id}/data?offset=0", content=b"weights")
    assert answer.status_code == 507
    assert "free" in answer.json()["detail"]["message"]
