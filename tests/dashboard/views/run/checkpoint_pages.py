"""Pages of one live run, whose checkpoints a test stores, and whose node it speaks for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.attempts import attempt_queries
from db.checkpoints import checkpoint_reports
from domain.checkpoint_use.tasks import CheckpointTaskReport, CheckpointTaskView
from domain.messages import CheckpointOffer
from tests.dashboard.pages import Pages, served

RUN = "wrapped"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch(RUN, 100, gpus_per_node=1)
        pages.seed.start(RUN, 90)
        yield pages


def store(
    pages: Pages,
    path: str,
    content: bytes,
    prefix: str | None = None,
    received: float = 1.0,
    task_id: int | None = None,
) -> None:
    """A checkpoint on the server, or on its way."""
    (attempt,) = attempt_queries.attempts(pages.service.store, pages.seed.runs[RUN])
    offer = CheckpointOffer(
        path=path,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        written_at=1.0,
        prefix=prefix,
        task_id=task_id,
    )
    node_id = pages.seed.node_ids["gpu-1"]
    row = checkpoint_reports.offered(pages.service.store, node_id, attempt.fence, 0, offer, 2.0)
    checkpoint_reports.received(pages.service.store, row.id, int(received * len(content)))
    if received == 1.0:
        checkpoint_reports.completed(pages.service.store, row.id, 2.0)
        pages.service.files.checkpoint(row.id).write_bytes(content)


def report(pages: Pages, task: CheckpointTaskView, state: str, **more: Any) -> None:
    """What the node says of its work."""
    (attempt,) = attempt_queries.attempts(pages.service.store, pages.seed.runs[RUN])
    told = CheckpointTaskReport.model_validate({"state": state, **more})
    pages.service.checkpoint_tasks.reported(pages.seed.node_ids["gpu-1"], attempt.fence, task.id, told)
