"""Wheels and locks that nodes hand on, by the worker's own client against the running server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dashboard.settings import MIB
from domain.environments.wheels import WheelFile
from tests.dashboard.running import FakeNode, sha256_of
from worker.session.failures import RequestRefused


def test_a_wheel_of_any_size_is_handed_on(node: FakeNode, tmp_path: Path) -> None:
    content, here = os.urandom(5 * MIB), tmp_path / "torch-2.9-py3-none-any.whl"
    here.write_bytes(content)
    wheel = WheelFile(name=here.name, sha256=sha256_of(content))
    assert node.client.want_wheels([wheel]).hopeless == [wheel.sha256]
    node.client.send_wheel(wheel, here)
    assert node.client.want_wheels([wheel]).there == [wheel.sha256]
    node.client.download_wheel(wheel, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == content
    with pytest.raises(RequestRefused):
        node.client.send_wheel(wheel.model_copy(update={"sha256": "0" * 64}), here)


def test_the_first_lock_counts_and_may_be_long(node: FakeNode) -> None:
    key, text = "0123456789abcdef", "# long\n" * MIB
    assert node.client.lock(key) is None
    assert node.client.keep_lock(key, text) == text
    assert node.client.keep_lock(key, "another") == text
    assert node.client.lock(key) == text
