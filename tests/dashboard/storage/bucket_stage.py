"""A dashboard with a bucket, and a worker whose checkpoint goes there."""

from __future__ import annotations

import hashlib
import pickle
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.dashboard.running import FakeNode, Running, wait_for
from tests.s3_server import Bucket
from worker.checkpoints.upload import CheckpointUploader
from worker.checkpoints.watching import CheckpointWatch
from worker.session.failures import ServerAway

MIB = 1024 * 1024
PART_BYTES = 5 * MIB
"""No bucket takes smaller ones, but for the last."""
CONTENT = random.Random(7).randbytes(2 * PART_BYTES + 100_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Spool:
    """One attempt's checkpoints on a node, and their way to the server."""

    def __init__(self, folder: Path, node: FakeNode) -> None:
        self.folder, self.node, self.task = folder, node, node.task()
        (folder / "work").mkdir(parents=True)
        self.restart()

    def restart(self) -> None:
        """As a worker does that was killed."""
        self._watch = CheckpointWatch([self.folder / "work"], self.folder / "outbox", quiet_s=0)
        self.uploader = CheckpointUploader(self._watch, self.node.client, self.task, "run/1")

    def save(self, content: bytes, name: str = "last.bin") -> None:
        """The training writes a checkpoint, and the worker copies it."""
        path = self.folder / "work" / name
        path.write_bytes(pickle.dumps(content))
        self.take()

    def take(self) -> None:
        """Copy what has changed."""
        self._watch.step(time.monotonic(), final=True)
        assert self._watch.pending()

    def send(self, may_go_on: Callable[[], bool] = lambda: True) -> None:
        self.uploader.send(None, may_go_on)

    def send_until_done(self) -> None:
        """As the worker's loop does, whatever is away meanwhile."""

        def sent() -> bool:
            try:
                self.send()
            except ServerAway:
                return False
            return not self._watch.pending()

        wait_for(sent, "the bucket to have everything")


@dataclass
class Stage:
    """A dashboard whose checkpoints go to a bucket, and a node with a run."""

    dashboard: Running
    bucket: Bucket
    spool: Spool
    run_id: str

    def listed(self) -> list[dict[str, Any]]:
        return list(self.dashboard.http.get(f"/api/runs/{self.run_id}/checkpoints").json())

    def download(self, **params: str) -> httpx2.Response:
        return self.dashboard.http.get(f"/api/checkpoints/{self.listed()[0]['id']}/file", params=params)

    def history(self) -> str:
        return str(self.dashboard.http.get(f"/api/runs/{self.run_id}/history").json())
