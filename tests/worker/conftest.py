"""Nodes under test, whose processes end with the test; and patience where a busy machine takes its time."""

from __future__ import annotations

import pytest

from tests.worker.real_node import RealNode
from tests.worker.virtual_node import VirtualNode
from worker.launch import interpreter, warm
from worker.node import hardware, scans
from worker.preflight import node_check
from worker.service import program, starters
from worker.session import client

LIMITS = {
    "ANSWER_LIMIT_S", "ANSWER_TIMEOUT_S", "END_LIMIT_S", "GPU_LIMIT_S", "IMPORT_LIMIT_S", "LIMIT_S", "REACH_LIMIT_S",
}  # fmt: skip


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A test that is not run for a while does not take that for a driver, a peer or a disk that is slow."""
    for module in (client, hardware, interpreter, node_check, program, starters, warm):
        for name in LIMITS & vars(module).keys():
            monkeypatch.setattr(module, name, 300.0)
    monkeypatch.setattr(scans, "PAUSE_PER_SCAN", 0)
    monkeypatch.setattr(warm, "_free_memory_bytes", lambda: 1 << 40)  # whatever other tests take


@pytest.fixture
def virtual_node(tmp_path):
    """A node on virtual time."""
    under_test = VirtualNode(tmp_path)
    with under_test.time:
        yield under_test


@pytest.fixture
def node(tmp_path):
    """A node with real processes."""
    under_test = RealNode(tmp_path)
    yield under_test
    under_test.clean_up()
