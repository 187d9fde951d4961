"""Wheels and locks that nodes hand on, by the worker's own client against the running server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from domain.environments.wheels import WheelFile
from domain.messages import NodeLoad
from domain.text.formats import MIB
from tests.dashboard.running import FakeNode, Running, sha256_of
from worker.session.client import TaskRef
from worker.session.failures import RequestRefused

KEY = "0123456789abcdef"
NAME = "torch-2.9-py3-none-any.whl"


@pytest.fixture
def task(dashboard: Running, node: FakeNode) -> TaskRef:
    """The task of a run on the node that asks."""
    dashboard.launch()
    return node.task()


@pytest.fixture
def other(dashboard: Running, task: TaskRef) -> FakeNode:
    """A node with a way to the index."""
    return dashboard.node("n1")


def named(node: FakeNode, task: TaskRef, content: bytes, url: str = "https://index.example/torch") -> WheelFile:
    """A wheel that a lock of the task's run names."""
    wheel = WheelFile(name=NAME, sha256=sha256_of(content), url=url)
    node.client.keep_lock(task, wheel.sha256[:16], f'wheels = ["{url}", "{wheel.sha256}"]')
    return wheel


def test_a_wheel_of_any_size_is_handed_on(node: FakeNode, other: FakeNode, task: TaskRef, tmp_path: Path) -> None:
    content, here = os.urandom(5 * MIB), tmp_path / NAME
    here.write_bytes(content)
    wheel = named(node, task, content)
    assert node.client.want_wheels(task, [wheel]).hopeless == []
    assert other.client.load(NodeLoad()) == [wheel]
    with pytest.raises(RequestRefused):
        other.client.send_wheel(wheel.model_copy(update={"sha256": "0" * 64}), here)
    other.client.send_wheel(wheel, here)
    assert node.client.want_wheels(task, [wheel]).there == [wheel.sha256]
    node.client.download_wheel(task, wheel, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == content


def test_a_node_brings_only_what_it_was_asked_for(
    node: FakeNode, other: FakeNode, task: TaskRef, tmp_path: Path
) -> None:
    (tmp_path / NAME).write_bytes(b"weights")
    wheel = named(node, task, b"weights")
    with pytest.raises(RequestRefused, match="was not asked"):
        other.client.send_wheel(wheel, tmp_path / NAME)
    node.client.want_wheels(task, [wheel])
    for sender in (node, other):  # the first waits for it itself, the second has not been asked yet
        with pytest.raises(RequestRefused, match="was not asked"):
            sender.client.send_wheel(wheel, tmp_path / NAME)
    node.client.wheel_failed(wheel)  # nor does a node that was not asked say that none can be had
    assert other.client.load(NodeLoad()) == [wheel]
    with pytest.raises(RequestRefused, match="was not asked"):
        other.client.send_wheel(wheel.model_copy(update={"name": "another-1-py3-none-any.whl"}), tmp_path / NAME)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "http://127.0.0.1/a", "http://[::1]/a", "http://169.254.169.254/a", "http://localhost"],
)
def test_nodes_are_asked_for_nothing_on_a_machine_itself(
    node: FakeNode, other: FakeNode, task: TaskRef, url: str
) -> None:
    wheel = named(node, task, b"weights", url)
    assert node.client.want_wheels(task, [wheel]).hopeless == [wheel.sha256]
    assert other.client.load(NodeLoad()) == []


def test_nodes_are_asked_only_for_what_a_lock_of_the_run_names(
    dashboard: Running, node: FakeNode, other: FakeNode, task: TaskRef
) -> None:
    wheel = named(node, task, b"weights")
    others = [
        wheel.model_copy(update={"url": "https://index.example/other"}),
        wheel.model_copy(update={"sha256": "0" * 64}),
    ]
    assert node.client.want_wheels(task, others).hopeless == [one.sha256 for one in others]
    dashboard.launch(name="another")
    another = TaskRef(task.fence + 1, 0)
    assert node.client.want_wheels(another, [wheel]).hopeless == [wheel.sha256]
    assert other.client.load(NodeLoad()) == []
    private = named(node, task, b"of the lab", "http://10.0.0.9:3141/torch")
    assert node.client.want_wheels(task, [private]).hopeless == []
    assert other.client.load(NodeLoad()) == [private]


def test_the_first_lock_counts_and_may_be_long(node: FakeNode, task: TaskRef) -> None:
    text = "# long\n" * MIB
    assert node.client.lock(task, KEY) is None
    assert node.client.keep_lock(task, KEY, text) == text
    assert node.client.keep_lock(task, KEY, "another") == text
    assert node.client.lock(task, KEY) == text


def test_locks_of_a_run_have_an_end_and_go_with_it(dashboard: Running, node: FakeNode, task: TaskRef) -> None:
    texts = {f"{number:016x}": "#" * (12 * MIB) for number in range(6)}
    with pytest.raises(RequestRefused, match="together"):
        for key, text in texts.items():
            node.client.keep_lock(task, key, text)
    run_id = node.assignment().run_id
    locks = dashboard.service.settings.data / "wheels" / "locks"
    assert [folder.name for folder in locks.iterdir()] == [run_id]
    node.report(task, "failed", reason="script error", message="It broke.")
    dashboard.http.delete(f"/api/runs/{run_id}", params={"now": True}).raise_for_status()
    assert not list(locks.iterdir())
