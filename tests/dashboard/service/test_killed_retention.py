"""Retention that is killed at any moment: nothing is listed that is not whole, and nothing that is kept is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select

from dashboard.live.hub import Hub
from dashboard.service.retention import Retention
from dashboard.storage.files import Files
from db.checkpoints import checkpoint_queries, checkpoint_reports, deleted_checkpoints, retention_rules
from db.engine import Store
from db.models import Checkpoint
from db.nodes.node_reports import register_node
from domain.messages import CheckpointOffer
from tests.dashboard.running import sha256_of
from tests.db.cluster import Cluster, facts
from tests.db.templates import new_store

pytestmark = pytest.mark.real
KILLS = [20, pytest.param(200, marks=pytest.mark.long)]
SAVES = 8
"""Checkpoints that one life of the server stores."""


class Server:
    """The part of a server that stores checkpoints and keeps them by a rule, on real files; nothing stays in a bin."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        new_store(folder / "rankzero.db")
        with self._opened() as (store, files, _):
            cluster = Cluster(store, register_node(store, facts(), None, 100.0).node_id)
            self.run_id, self._node_id = cluster.launch(), cluster.node_id
            self._fence = cluster.assignments()[0].fence
            cluster.report(self._fence, "running")
            self.pinned = self._save(store, files, 1)
            deleted_checkpoints.pin(store, self.pinned, 100.0)
            retention_rules.set_for_run(store, self.run_id, "last 2", 100.0)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Store, Files, Retention]]:
        store, files = Store.open(self._folder / "rankzero.db"), Files(self._folder / "files", 0)
        yield store, files, Retention(store, files, Hub(), lambda: 1000.0, kept_days=0.0)
        store.close()

    def train(self) -> None:
        """Store some checkpoints, and apply the rule after each."""
        with self._opened() as (store, files, retention):
            with store.read() as session:
                step = session.scalar(select(func.max(Checkpoint.step))) or 0
            for number in range(1, SAVES + 1):
                self._save(store, files, step + number)
                retention.judge_soon([self.run_id])
                retention.sweep()

    def _save(self, store: Store, files: Files, step: int) -> int:
        content = self.content(step)
        offer = CheckpointOffer(
            path=f"work/step_{step}.pt", step=step, size_bytes=len(content), sha256=sha256_of(content),
            written_at=60.0 * step,
        )  # fmt: skip
        row = checkpoint_reports.offered(store, self._node_id, self._fence, 0, offer, 100.0)
        files.checkpoint(row.id).write_bytes(content)
        checkpoint_reports.completed(store, row.id, 100.0)
        return row.id

    @staticmethod
    def content(step: int) -> bytes:
        """The bytes of the checkpoint of a step."""
        return f"{step}".encode() * 1000

    def check(self, *, is_settled: bool) -> None:
        """Check all that is listed; once everything is settled, nothing else is on the disk."""
        with self._opened() as (store, files, _):
            listed = [one for one in checkpoint_queries.checkpoints(store, self.run_id) if one.complete]
            for one in listed:
                assert files.checkpoint(one.id).read_bytes() == self.content(one.step or 0)
            with store.read() as session:
                ever = (Checkpoint.complete, Checkpoint.deleted_at.is_not(None))
                newest = session.scalar(select(func.max(Checkpoint.id)).where(ever[0] | ever[1]))
                arriving = set(
                    session.scalars(select(Checkpoint.id).where(~ever[0], ~ever[1]))
                )  # their node asks again
            ids = {one.id for one in listed}
            assert {self.pinned, newest} <= ids
            if is_settled:
                assert {int(path.name) for path in files.checkpoints.iterdir()} - arriving == ids
                assert len(ids) == 3


def killed(act: Callable[[], object], after_s: float) -> None:
    """Do it in a process that is killed after so long, unless it was done sooner."""
    child = os.fork()
    if not child:
        try:
            act()
        finally:
            os._exit(0)
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("kills", KILLS)
def test_retention_that_is_killed_keeps_what_is_kept(tmp_path: Path, kills: int) -> None:
    server = Server(tmp_path)
    began = time.monotonic()
    server.train()
    longest_s = time.monotonic() - began
    for _ in range(kills):
        killed(server.train, random.uniform(0, longest_s))
        server.check(is_settled=False)
    server.train()
    server.check(is_settled=True)
