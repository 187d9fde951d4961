"""A node under test, whose processes end with the test."""

from __future__ import annotations

import pytest

from tests.worker.agent.node_under_test import NodeUnderTest


@pytest.fixture
def node(tmp_path):
    under_test = NodeUnderTest(tmp_path)
    yield under_test
    under_test.clean_up()
