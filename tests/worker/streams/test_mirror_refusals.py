"""What the server, or a proxy before it, does not take in one piece goes in smaller ones, or is set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.sendings import answering, done
from tests.worker.streams.mirroring_node import Node
from worker.session.failures import OffsetMismatch, RequestFailed, RequestRefused, TooLarge
from worker.streams.mirror import CAP_BYTES


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "attempt")


def refuse(node: Node, path: str, error: Exception, over_bytes: int = 0) -> None:
    """Let the server refuse pieces of a file that are larger."""
    take = node.server.send

    def send(asked: str, generation: int, offset: int, data: bytes) -> int:
        if asked == path and len(data) > over_bytes:
            raise error
        return take(asked, generation, offset, data)

    node.mirror.piece_of = answering(send)


def test_pieces_are_halved_until_they_pass_and_every_byte_arrives_once(node: Node) -> None:
    content = bytes(range(256)) * 12_000
    (node.dir / "logs/rank0.out").write_bytes(content)
    refuse(node, "logs/rank0.out", TooLarge("413"), over_bytes=100_000)
    while done(node.mirror.step(float("inf"))):
        pass
    assert node.server.text("logs/rank0.out") == content
    assert node.mirror.pending_bytes() == 0 and node.mirror.refusals() == []


@pytest.mark.parametrize("error", [TooLarge("413"), RequestRefused("no such name")])
def test_mirror_sets_aside_a_file_that_the_server_refuses(node: Node, error: RequestRefused) -> None:
    (node.dir / "logs/rank0.out").write_bytes(b"x" * 3_000_000)
    (node.dir / "logs/rank0.err").write_bytes(b"y" * 3_000_000)
    refuse(node, "logs/rank0.out", error)
    while done(node.mirror.step(float("inf"))):
        pass
    assert node.server.text("logs/rank0.err") == b"y" * 3_000_000
    assert node.mirror.pending_bytes() == 0, "the attempt's end waits for nothing"
    (refusal,) = node.mirror.refusals()
    assert refusal.startswith("logs/rank0.out was refused at byte 0")


def test_an_offset_that_no_server_can_have_moves_nothing(node: Node) -> None:
    (node.dir / "logs/rank0.out").write_bytes(b"x" * 1000)
    refuse(node, "logs/rank0.out", OffsetMismatch(CAP_BYTES * 2))
    with pytest.raises(RequestFailed, match="more than any server was ever sent"):
        done(node.mirror.step(float("inf")))
    assert node.mirror.pending_bytes() == 1000
    node.mirror.piece_of = answering(node.server.send)
    done(node.mirror.step(float("inf")))
    assert node.server.text("logs/rank0.out") == b"x" * 1000
