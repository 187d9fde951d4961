"""A step sends what was there when it began, from every source."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.messages import PointBatch
from tests.worker.sendings import answering, done
from worker.session.failures import RequestFailed, RequestRefused, ServerMistake
from worker.streams.omissions import SET_ASIDE_FILE, Omissions
from worker.streams.point_uploader import STEP_BATCHES, TRIES, PointStream, PointUploader


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


def stream_of(send, folder: Path, *sources: Written, **how: bool) -> PointStream:
    return PointStream(lambda _: sources, PointUploader(answering(send), Omissions(folder)), **how)


def sent_in_a_step(tmp_path: Path, *sources: Written) -> tuple[int, list[str]]:
    sent: list[str] = []

    def send(batch: PointBatch) -> int:
        sent.append(batch.path)
        return batch.end

    return done(stream_of(send, tmp_path, *sources).step()), sent


def test_a_busy_writer_is_not_followed_within_a_step(tmp_path: Path) -> None:
    assert sent_in_a_step(tmp_path, Written("a", 100, 1000)) == (1, ["a"])


def test_busy_writers_leave_a_turn_to_each_other(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    count, sent = sent_in_a_step(tmp_path, *[Written(name, 100, 1000) for name in names])
    assert sent == names and count < STEP_BATCHES, "nothing is waiting"


def test_a_backlog_is_sent_in_steps(tmp_path: Path) -> None:
    assert sent_in_a_step(tmp_path, Written("a", 10_000, 1000)) == (STEP_BATCHES, ["a"] * STEP_BATCHES)


class Server:
    """Fails at the points behind a byte of one file; notes the bytes that it takes."""

    def __init__(self, failure: Exception, path: str, start: int) -> None:
        self.failure, self.fails_at = failure, (path, start)
        self.fails_without_points = False
        self.taken: list[tuple[str, int, int]] = []

    def send(self, batch: PointBatch) -> int:
        if (batch.path, batch.start) == self.fails_at and (batch.series or self.fails_without_points):
            raise self.failure
        self.taken.append((batch.path, batch.start, batch.end))
        return batch.end


def test_a_batch_that_the_server_fails_at_again_and_again_is_set_aside(tmp_path: Path) -> None:
    server = Server(ServerMistake("no"), "a", 100)
    stream = stream_of(server.send, tmp_path, Written("a", 250, 100))
    for _ in range(TRIES - 1):
        with pytest.raises(ServerMistake):
            done(stream.step())
    assert server.taken == [("a", 0, 100)]
    done(stream.step())
    assert server.taken[1:4] == [("a", 100, 100), ("a", 100, 200), ("a", 200, 252)]
    assert (tmp_path / SET_ASIDE_FILE).read_text().count("\n") == 1


def test_what_was_written_after_a_failure_is_sent_in_the_step_that_works_again(tmp_path: Path) -> None:
    server, source = Server(RequestFailed("busy"), "a", 0), Written("a", 100, 100)
    stream = stream_of(server.send, tmp_path, source)
    with pytest.raises(RequestFailed):
        done(stream.step())
    server.fails_at, source.size_bytes = ("", 0), 190
    assert done(stream.step(final=True)) < STEP_BATCHES
    assert server.taken == [("a", 0, 100), ("a", 100, 191)]


def test_no_batch_is_to_blame_while_the_server_fails_without_its_points(tmp_path: Path) -> None:
    server = Server(ServerMistake("no"), "a", 100)
    server.fails_without_points = True
    stream = stream_of(server.send, tmp_path, Written("a", 250, 100))
    for _ in range(2 * TRIES):
        with pytest.raises(ServerMistake):
            done(stream.step())
    assert not (tmp_path / SET_ASIDE_FILE).exists()
    server.fails_at = "", 0
    done(stream.step())
    assert server.taken[:3] == [("a", 0, 100), ("a", 100, 200), ("a", 200, 252)]


def test_a_refused_batch_is_passed_in_the_same_step_though_others_have_their_turn(tmp_path: Path) -> None:
    server = Server(RequestRefused("no"), "c", 100)
    sources = [Written(name, 1000, 100) for name in "abc"]
    stream = stream_of(server.send, tmp_path, *sources, have_own_series=True)
    assert done(stream.step()) == STEP_BATCHES
    assert [place for place in server.taken if place[0] == "c"] == [("c", 0, 100), ("c", 100, 200)]


def test_a_file_behind_one_that_the_server_fails_at_waits_because_it_may_go_on_with_its_series(tmp_path: Path) -> None:
    server = Server(ServerMistake("no"), "a", 0)
    first, second = Written("a", 100, 1000), Written("b", 100, 1000)
    with pytest.raises(ServerMistake):
        done(stream_of(server.send, tmp_path, first, second).step())
    assert server.taken == []
    with pytest.raises(ServerMistake):
        done(stream_of(server.send, tmp_path, first, second, have_own_series=True).step())
    assert server.taken == [("b", 0, 100)]
