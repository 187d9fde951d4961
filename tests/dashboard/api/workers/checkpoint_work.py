"""Runs with checkpoints, and what a node is asked to do with them and reports."""

from __future__ import annotations

from typing import Any

import pytest

from domain.checkpoint_use.tasks import CheckpointTaskReport, DesiredCheckpointTask
from tests.dashboard.running import FakeNode, Running


@pytest.fixture
def saved(dashboard: Running, node: FakeNode) -> tuple[str, int]:
    """A run that has ended with a checkpoint; its id and the checkpoint's."""
    run_id = dashboard.launch()
    task = node.task()
    checkpoint_id = node.store_checkpoint(task, b"weights", step=40)
    node.report(task, "succeeded", exit_code=0)
    return run_id, checkpoint_id


def second(dashboard: Running, node: FakeNode) -> int:
    """A checkpoint of another run."""
    dashboard.launch()
    task = node.task()
    checkpoint_id = node.store_checkpoint(task, b"other weights", step=80)
    node.report(task, "succeeded", exit_code=0)
    return checkpoint_id


def desired(node: FakeNode) -> list[DesiredCheckpointTask]:
    return node.client.desired_state(None, 0).checkpoint_tasks


def report(node: FakeNode, task: DesiredCheckpointTask, state: str, **more: Any) -> None:
    node.client.report_checkpoint_task(task, CheckpointTaskReport.model_validate({"state": state, **more}))
