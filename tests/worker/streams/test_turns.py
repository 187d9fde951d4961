"""Thousands of files and holes of many gigabytes take a bounded step each, and lose nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from domain.messages import PointBatch
from tests.worker.sendings import answering, done
from tests.worker.streams.event_bytes import scalar
from worker.node import run_files
from worker.streams import mirror as mirrors
from worker.streams import point_uploader
from worker.streams.events import EventTail
from worker.streams.mirror import FileMirror
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import STEP_BATCHES, PointStream, PointUploader

GIB = 1 << 30


@dataclass
class Source:
    """A file with `batches` batches of one point."""

    path: str
    batches: int = 1
    generation: int = 0
    at: int = 0
    reads: list = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return self.batches

    def read(self, max_bytes):
        if self.at == self.batches:
            return None
        series = {self.path: [(self.at, 1.0, 1.0)]}
        return PointBatch(path=self.path, generation=0, start=self.at, end=self.at + 1, series=series)

    def rewind(self, offset):
        self.at = offset


def stream_of(sources, folder):
    arrived = []

    def send(batch):
        arrived.append(batch.path)
        return batch.end

    uploader = PointUploader(answering(send), Omissions(folder))
    return PointStream(lambda final: iter(sources), uploader, are_many=True), arrived


def test_a_step_takes_a_turn_of_many_files_and_the_next_goes_on_behind_it(tmp_path, monkeypatch):
    monkeypatch.setattr(point_uploader, "MOST_TOGETHER", 4)
    monkeypatch.setattr(point_uploader, "STEP_REQUESTS", 3)
    sources = [Source(f"{number}") for number in range(36)]
    stream, arrived = stream_of(sources, tmp_path)
    assert done(stream.step()) == STEP_BATCHES and len(arrived) == 12
    for source in sources[:12]:
        source.batches += 1  # they go on writing: the others have their turn all the same
    steps = 1
    while done(stream.step()) == STEP_BATCHES:
        steps += 1
    assert set(arrived) == {source.path for source in sources} and steps <= 5
    assert all(source.at == source.batches for source in sources)


def test_a_large_file_is_sent_alone_because_the_next_may_go_on_with_its_series(tmp_path, monkeypatch):
    monkeypatch.setattr(point_uploader, "SMALL_BYTES", 1)
    sources = [Source("first"), Source("large", batches=3), Source("last")]
    stream, arrived = stream_of(sources, tmp_path)
    while done(stream.step()) == STEP_BATCHES:
        pass
    assert arrived == ["first", "large", "large", "large", "last"]


def test_many_small_files_are_copied_in_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(mirrors, "STEP_FILES", 4)
    work = tmp_path / "work"
    work.mkdir()
    for number in range(10):
        (work / f"events.out.tfevents.{1_700_000_000 + number}.h").write_bytes(b"x")
    arrived = []

    def send(path, generation, offset, data):
        arrived.append(path)
        return offset + len(data)

    mirror = FileMirror(tmp_path, [work], lambda path, generation: 0, answering(send))
    assert [done(mirror.step(0.0)) for _ in range(4)] == [4, 4, 2, 0]
    assert len(set(arrived)) == 10


def test_event_files_beyond_the_limit_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(mirrors, "MAX_EVENT_FILES", 3)
    work = tmp_path / "work"
    work.mkdir()
    for number in range(5):
        (work / f"events.out.tfevents.{1_700_000_000 + number}.h").write_bytes(b"x")
    mirror = FileMirror(tmp_path, [work], lambda path, generation: 0, None)
    mirror.pending_bytes()
    mirror.pending_bytes()
    assert (len(mirror.event_files()), mirror.left_out) == (3, 2)


def test_folder_with_more_entries_than_are_looked_at_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(run_files, "MAX_ENTRIES", 5)
    work, data = tmp_path / "work", tmp_path / "work/data"
    data.mkdir(parents=True)
    for number in range(5):
        (data / str(number)).touch()
    mirror = FileMirror(tmp_path, [work], lambda path, generation: 0, None)
    mirror.pending_bytes()
    assert mirror.too_large == []  # all of it was looked at
    (work / "more").mkdir()
    for _ in range(2):
        mirror.pending_bytes()
        assert mirror.too_large == [work]
    (work / "more").rmdir()
    mirror.pending_bytes()
    assert mirror.too_large == []


def test_a_hole_of_ten_gigabytes_is_neither_copied_nor_waited_for(tmp_path):
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "rank0.out"
    log.write_bytes(b"hello\n")
    os.truncate(log, 10 * GIB)
    with log.open("ab") as lines:
        lines.write(b"behind it\n")
    arrived = []

    def send(path, generation, offset, data):
        arrived.append(data)
        return offset + len(data)

    mirror = FileMirror(tmp_path, [], lambda path, generation: 0, answering(send))
    while mirror.pending_bytes():
        done(mirror.step(0.0))
    assert b"".join(arrived).rstrip(b"\0") == b"hello\n" and sum(map(len, arrived)) <= 1 << 20
    (sentence,) = mirror.holes()
    assert sentence.startswith("logs/rank0.out was never written from byte ")


def test_records_behind_a_hole_of_ten_gigabytes_are_read_in_a_few_steps(tmp_path):
    first, second = scalar(1, 0.5, "loss"), scalar(2, 0.25, "loss")
    path = tmp_path / "events.out.tfevents.1700000000.h"
    path.write_bytes(first)
    os.truncate(path, 10 * GIB)
    with path.open("ab") as file:
        file.write(second)
    tail, steps, points = EventTail(path), 0, []
    tail.final = True
    while (records := tail.read(256 * 1024)).end > records.start:
        steps, points = steps + 1, points + records.series.get("loss", [])
    assert [point[:2] for point in points] == [(1, 0.5), (2, 0.25)] and steps < 20
    assert tail.offset == 10 * GIB + len(second)
