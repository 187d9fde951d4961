"""Points and bytes arrive once, in their order, whatever a server answers and however often the worker restarts."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from domain.messages import PieceAnswer, PieceHead
from domain.spec import RunSpec
from tests.worker.fake_server import FakeServer
from tests.worker.sendings import upload_remaining
from tests.worker.streams.event_bytes import scalar
from worker.attempt.uploader import AttemptUploader
from worker.node.attempt_files import EXISTING_FILE
from worker.session.client import TaskRef
from worker.session.failures import RequestFailed, ServerAway, ServerMistake, TooLarge
from worker.session.outbox import Outbox, send

STEPS = 3_000
FILES = [f"work/runs/events.out.tfevents.{1_700_000_000 + number}.h" for number in range(3)]


class UnreliableServer(FakeServer):
    """Fails at one request in four and one piece in four, also after it has stored them."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    def bundle(self, heads: Sequence[PieceHead], contents: Sequence[bytes]) -> list[PieceAnswer]:
        if self._chance.random() < 0.05:
            raise ServerAway("connection refused")
        if sum(map(len, contents)) > 20_000 and self._chance.random() < 0.1:
            raise TooLarge("413")
        answers = super().bundle(heads, contents)
        if self._chance.random() < 0.1:
            raise RequestFailed("the connection broke off")
        return answers

    def append(self, *piece) -> int:
        self._fail()
        offset = super().append(*piece)
        self._fail()
        return offset

    def points(self, *piece) -> int:
        self._fail()
        offset = super().points(*piece)
        self._fail()
        return offset

    def _fail(self) -> None:
        if self._chance.random() < 0.15:
            raise self._chance.choice([ServerMistake("no"), RequestFailed("busy")])


class Node:
    """An attempt that writes three event files, one after another, and a log."""

    def __init__(self, folder: Path, server: UnreliableServer) -> None:
        self.folder, self.server, self.written = folder, server, 0
        for name in ("work/runs", "logs", "worker"):
            (folder / name).mkdir(parents=True)
        (folder / EXISTING_FILE).parent.mkdir(exist_ok=True)
        (folder / EXISTING_FILE).write_text("{}")
        os.utime(folder / EXISTING_FILE, (1, 1))
        self.restart_worker()

    def restart_worker(self) -> None:
        self.uploader = AttemptUploader(self.folder, RunSpec(target="/a.py"), self.server, TaskRef(1, 0), "a/1")

    def write(self, steps: int) -> None:
        for step in range(self.written, min(STEPS, self.written + steps)):
            with (self.folder / FILES[step * len(FILES) // STEPS]).open("ab") as events:
                events.write(scalar(step, step * 0.5))
            with (self.folder / "logs/rank0.out").open("a") as log:
                log.write(f"{step} is done\n")
            self.written = step + 1

    def upload(self, now: float) -> bool:
        """Send what is due, and what remains once all is written; True when the server has everything."""
        is_over = self.written == STEPS
        self.uploader.checkpoints.take(now, final=is_over)
        try:
            if is_over:
                return not upload_remaining(self.uploader, self.server) and self.uploader.is_complete
            send(self.server, Outbox(self.uploader.upload(now, watched=True)))
        except ServerAway:
            pass
        return False


@pytest.mark.parametrize("seed", [1, 2, 3, 26])
def test_points_and_bytes_arrive_once_in_their_order(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    node = Node(tmp_path, UnreliableServer(chance))
    for turn in range(5_000):
        node.write(chance.randrange(200))
        if chance.random() < 0.1:
            node.restart_worker()
        if node.upload(10.0 * turn):
            break
    steps = [step for points in sorted(node.server.series.values()) for step, _, _ in points]
    assert steps == [*range(STEPS)]
    assert node.server.text("logs/rank0.out") == "".join(f"{step} is done\n" for step in range(STEPS))
    for file in FILES:
        assert node.server.files[1, file, 0] == (tmp_path / file).read_bytes()
