"""A server with a run of each kind of file, and its backups."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dashboard.backups import taking
from dashboard.backups.restoring import Restoration, RestoredStore
from dashboard.backups.taking import TakenBackup
from dashboard.settings import Settings
from tests.dashboard.running import FakeNode, Running
from worker.session.client import TaskRef

DAY_S = 86400.0


@dataclass
class BackedUp:
    """A running server, its node with one task, and a folder of backups."""

    dashboard: Running
    node: FakeNode
    task: TaskRef
    folder: Path
    now: float = 1_700_000_000.0

    @property
    def settings(self) -> Settings:
        return self.dashboard.service.settings

    @property
    def files(self) -> Path:
        return self.settings.files_directory

    def take(self) -> TakenBackup:
        """Take a backup, a day after the one before."""
        self.now += DAY_S
        return taking.take_backup(self.settings, self.folder, self.dashboard.service.store.backup, self.now)

    def append(self, content: bytes, offset: int = 0, path: str = "logs/rank0.out") -> int:
        return self.node.append(self.task, path, 0, offset, content)

    def checkpoint(self, content: bytes, step: int) -> Path:
        """Store a checkpoint; returns its file on the server."""
        number = self.node.store_checkpoint(self.task, content, f"work/ckpt_{step}.pt", step)
        return self.files / "checkpoints" / str(number)


def backed_up(dashboard: Running, folder: Path) -> BackedUp:
    """A server whose run has points, a log and a checkpoint."""
    node = dashboard.node()
    dashboard.launch()
    it = BackedUp(dashboard, node, node.task(), folder)
    node.report(it.task, "running")
    node.log_points(it.task, 0, train__loss=[(1, 0.5, 1.0), (2, 0.25, 2.0)])
    it.append(b"first line\n")
    it.checkpoint(b"weights of step 1", 1)
    return it


def restore(backup: Path, data: Path, damaged: dict[str, str] | None = None) -> RestoredStore:
    """Restore a backup there; nothing but these files may be damaged."""
    restoration = Restoration(backup, Settings(data=data))
    try:
        assert restoration.copy() == (damaged or {})
        restored = restoration.settle(2_000_000_000.0)
        restoration.finish()
        return restored
    finally:
        restoration.discard()


def damage(path: Path) -> None:
    """Change one byte of a file and nothing of what `stat` tells."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
