"""A node that mirrors its files to a server."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.worker.sendings import answering, done
from worker.streams.mirror import FileMirror, OffsetMismatch


class FakeServer:
    """Takes bytes only at the offset it has."""

    def __init__(self) -> None:
        self.files: defaultdict[tuple[str, int], bytearray] = defaultdict(bytearray)
        self.requests: list[tuple[str, int, int]] = []
        self.away = False

    def offset_of(self, path: str, generation: int) -> int:
        if self.away:
            raise ConnectionError
        return len(self.files[path, generation])

    def send(self, path: str, generation: int, offset: int, data: bytes) -> int:
        if self.away:
            raise ConnectionError
        file = self.files[path, generation]
        self.requests.append((path, offset, len(data)))
        if offset != len(file):
            raise OffsetMismatch(len(file))
        file += data
        return len(file)

    def text(self, path: str, generation: int = 0) -> bytes:
        return bytes(self.files[path, generation])


class Node:
    """An attempt's directory, a server, and a mirror between them."""

    def __init__(self, attempt_dir: Path) -> None:
        self.dir, self.server, self.now = attempt_dir, FakeServer(), 0.0
        self.work = attempt_dir / "work"
        for folder in ("logs", "work"):
            (attempt_dir / folder).mkdir(parents=True)
        self.restart_worker()

    def restart_worker(self, **settings: object) -> None:
        self.mirror = FileMirror(
            self.dir,
            [self.work],
            self.server.offset_of,
            answering(self.server.send),
            **settings,  # type: ignore[arg-type]
        )

    def write(self, name: str, data: bytes) -> Path:
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        return path

    def settle(self) -> None:
        for _ in range(100):
            self.now += 1
            done(self.mirror.step(self.now))
            if not self.mirror.pending_bytes():
                return
        raise AssertionError("the mirror does not come to an end")
