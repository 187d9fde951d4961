"""Bytes that arrive while their run is erased are refused, and none of them is left on the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.api.workers import checkpoints
from dashboard.service import stream_pieces
from dashboard.service.service import Service
from dashboard.service.stream_pieces import ArrivedPiece
from dashboard.settings import Settings
from db.checkpoints import checkpoint_reports
from db.exceptions import NotOwner, Superseded
from db.tasks.task_reports import StreamKey
from domain.messages import CheckpointOffer
from tests.dashboard.service.interleaving import interrupted
from tests.dashboard.service.one_run import Lab, OneRun
from tests.db.templates import new_data

CONTENT = b"weights"


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[OneRun]:
    service = Service.open(Settings(data=new_data(tmp_path / "data")))
    yield Lab(service).run("ended")
    service.close()


def left(one: OneRun) -> list[Path]:
    """The files of runs that the dashboard has."""
    return [path for path in one.service.files.root.rglob("*") if path.is_file() and path.name != "proof"]


def erase(one: OneRun) -> None:
    one.service.delete(one.run_id, at_once=True)


def test_a_log_that_arrives_while_its_run_is_erased_leaves_no_file(ended: OneRun) -> None:
    piece = ArrivedPiece(StreamKey(ended.fence, 0, "logs/rank0.out", 0), content=b"hello")
    with interrupted(ended.store, 1, lambda: erase(ended)) as interruption:
        (answer,) = stream_pieces.take(ended.service, ended.lab.node_id, [piece])
    assert interruption.has_acted and isinstance(answer, Superseded) and left(ended) == []


def test_a_checkpoint_that_is_whole_when_its_run_is_erased_leaves_no_file(ended: OneRun) -> None:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    offer = CheckpointOffer(path="last.pt", step=2, size_bytes=len(CONTENT), sha256=sha256, written_at=1.0)
    checkpoint = checkpoint_reports.offered(ended.store, ended.lab.node_id, ended.fence, 0, offer, 1.0)
    ended.service.storages.of(checkpoint).add(checkpoint, 0, CONTENT)
    with interrupted(ended.store, 0, lambda: erase(ended)) as interruption, pytest.raises(NotOwner, match="deleted"):
        checkpoints._complete(ended.service, ended.lab.node_id, checkpoint.id, None, [])
    assert interruption.has_acted and left(ended) == []
