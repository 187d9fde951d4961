"""A checkpoint that never arrived whole is sent again by its node, or the server is told why it cannot be."""

from __future__ import annotations

import pytest

from domain.assignments import Resend
from tests.worker.node_under_test import RUN
from tests.worker.virtual_node import VirtualNode, checkpoint
from worker.checkpoints.upload import CHANGED, GONE
from worker.session.answers import DesiredState
from worker.session.failures import RequestFailed


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    return virtual_node


@pytest.fixture
def lost(node):
    """A run that has ended, whose checkpoint the server has lost again."""
    node.assign(node.assignment(node.script(checkpoint("last.pt", 5000))))
    assert node.until_settled().state == "succeeded"
    (stored,) = node.server.checkpoints
    stored |= {"data": b"", "complete": False}
    return stored


def ask_again(node, stored, **changes) -> None:
    asked = {
        "checkpoint_id": 0, "run_id": RUN, "attempt": 1, "fence": 1, "node_rank": 0,
        "path": "work/last.pt", "sha256": stored["sha256"],
    }  # fmt: skip
    resend = Resend.model_validate(asked | changes)
    node.daemon.set_desired_state(DesiredState(version="2", assignments=[], resends=[resend]))


def test_checkpoint_is_sent_again_also_by_another_worker(node, lost):
    node.start_worker()
    ask_again(node, lost)
    node.until(lambda: node.server.answered)
    assert node.server.answered == {0: None}
    assert lost["complete"] and lost["data"] == (node.dir() / "work/last.pt").read_bytes()


def test_server_that_fails_is_asked_again(node, lost, monkeypatch):
    failures = [RequestFailed("the connection broke off")] * 2
    send = node.server.send_checkpoint

    def send_checkpoint(*data):
        if failures:
            raise failures.pop()
        return send(*data)

    monkeypatch.setattr(node.server, "send_checkpoint", send_checkpoint)
    ask_again(node, lost)
    node.until(lambda: node.server.answered)
    assert node.server.answered == {0: None} and lost["complete"]


def test_file_that_is_gone_or_was_never_here_is_told(node, lost):
    (node.dir() / "work/last.pt").unlink()
    ask_again(node, lost)
    node.until(lambda: node.server.answered)
    assert node.server.answered == {0: GONE}
    ask_again(node, lost, checkpoint_id=7, run_id="zzzzzzzzzz")
    node.until(lambda: 7 in node.server.answered)
    assert node.server.answered[7] == GONE


def test_newer_version_of_the_file_is_sent_and_told(node, lost):
    ask_again(node, lost, sha256="0" * 64)
    node.until(lambda: node.server.answered)
    assert node.server.answered == {0: CHANGED} and lost["complete"]
