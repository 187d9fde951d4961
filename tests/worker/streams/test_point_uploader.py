"""A step sends what was there when it began, from every source."""

from __future__ import annotations

from pathlib import Path

from domain.messages import PointBatch
from tests.worker.sendings import answering, done
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import STEP_BATCHES, PointStream, PointUploader


class Written:
    """A file whose writer adds a record while each batch is on its way."""

    def __init__(self, name: str, size: int, batch: int) -> None:
        self.path, self.generation, self.size_bytes = name, 0, size
        self._offset, self._batch = 0, batch

    def read(self, max_bytes: int) -> PointBatch | None:
        """The next bytes, at most a batch."""
        start, end = self._offset, min(self.size_bytes, self._offset + self._batch)
        series = {"loss": [(start, 1.0, 2.0)]}
        return None if end == start else PointBatch(path=self.path, generation=0, start=start, end=end, series=series)

    def rewind(self, offset: int) -> None:
        """Continue there; meanwhile the file has grown."""
        self._offset, self.size_bytes = offset, self.size_bytes + 1


def sent_in_a_step(tmp_path: Path, *sources: Written) -> tuple[int, list[str]]:
    sent: list[str] = []

    def send(batch: PointBatch) -> int:
        sent.append(batch.path)
        return batch.end

    return done(PointStream(lambda _: sources, PointUploader(answering(send), Omissions(tmp_path))).step()), sent


def test_a_busy_writer_is_not_followed_within_a_step(tmp_path: Path) -> None:
    assert sent_in_a_step(tmp_path, Written("a", 100, 1000)) == (1, ["a"])


def test_busy_writers_leave_a_turn_to_each_other(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    count, sent = sent_in_a_step(tmp_path, *[Written(name, 100, 1000) for name in names])
    assert sent == names and count < STEP_BATCHES, "nothing is waiting"


def test_a_backlog_is_sent_in_steps(tmp_path: Path) -> None:
    assert sent_in_a_step(tmp_path, Written("a", 10_000, 1000)) == (STEP_BATCHES, ["a"] * STEP_BATCHES)
