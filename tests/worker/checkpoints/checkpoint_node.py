"""A node whose script writes checkpoints of several files."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
import zipfile
from pathlib import Path

from worker.checkpoints.watching import CheckpointCopy, CheckpointWatch


def zip_bytes(size: int = 1000) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + os.urandom(size))
    return buffer.getvalue()


def safetensors_bytes(values: int = 10) -> bytes:
    text = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(4 * values)


def index_of(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"layer.{n}": shard for n, shard in enumerate(shards)}}).encode()


class Node:
    """An attempt's directory and a watch over it, with a clock of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.dir = tmp_path / "data/runs/abcdefghij/attempts/1/node0"
        self.work, self.now = self.dir / "work", 100.0
        self.work.mkdir(parents=True)
        self.watch = CheckpointWatch([self.work], self.dir / "outbox", quiet_s=5, free_bytes=lambda _: 1 << 40)

    def write(self, **files: bytes) -> None:
        for name, data in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def look(self, seconds: float = 1, *, final: bool = False) -> list[CheckpointCopy]:
        self.now += seconds
        return self.watch.step(self.now, final=final)

    def settle(self, seconds: float = 12) -> list[CheckpointCopy]:
        """All that is taken when nothing is written any more."""
        return [taken for _ in range(int(seconds)) for taken in self.look()]


def names(snapshots: list[CheckpointCopy]) -> list[str]:
    return sorted(snapshot.name.removeprefix("work/") for snapshot in snapshots)


def content(snapshot: CheckpointCopy) -> dict[str, bytes]:
    with tarfile.open(snapshot.path, "r:") as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isreg()}
        return {name: file.read() for name, file in files.items() if file}
