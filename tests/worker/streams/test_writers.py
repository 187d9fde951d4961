"""Series of several writers in one folder: told apart by the process and by whether they grow at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event

from worker.streams.events import CHECKSUM, HEADER, masked_crc
from worker.streams.mirror import MirroredFile
from worker.streams.writers import RanksOfProcesses, Writers, process_of

NAME = "events.out.tfevents.{second}.a.b.host.{pid}.{number}{suffix}"


class Folder:
    """A working directory with event files, each with the times of its first and last event."""

    def __init__(self, root: Path, ranks: dict[int, int]) -> None:
        self.root, self.ranks = root, ranks
        self.writers = self.restarted()

    def restarted(self) -> Writers:
        return Writers(self.root / "writers.json", lambda pid: self.ranks.get(pid or 0), 0)

    def write(self, pid: int, begin: float, end: float, *, suffix: str = "", number: int = 0) -> str:
        path = f"work/tb/{NAME.format(second=int(begin), pid=pid, number=number, suffix=suffix)}"
        source = self.root / path
        source.parent.mkdir(parents=True, exist_ok=True)
        data = Event(wall_time=begin, file_version="brain.Event:2").SerializeToString()
        length = len(data).to_bytes(8, "little")
        source.write_bytes(HEADER.pack(len(data), masked_crc(length)) + data + CHECKSUM.pack(masked_crc(data)))
        os.utime(source, (end, end))
        return path

    def look(self) -> None:
        files = sorted((self.root / "work").rglob("*tfevents*"))
        self.writers.look(
            MirroredFile(file.relative_to(self.root).as_posix(), file, file.stat().st_ino, 0, b"") for file in files
        )

    def prefix(self, path: str, tag: str = "loss") -> str:
        self.look()
        return self.writers.prefix(tag, path, has_own_folder=False)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, {10: 0, 11: 1, 12: 0})


def test_rank_0_has_the_plain_name_although_its_file_is_younger(folder: Folder) -> None:
    of_rank_1 = folder.write(11, 1000, 1060)
    assert folder.prefix(of_rank_1) == "rank1:"
    of_rank_0 = folder.write(10, 1002, 1060)
    assert folder.prefix(of_rank_0) == ""
    folder.ranks.clear()  # the processes have ended
    folder.writers = folder.restarted()
    assert (folder.prefix(of_rank_0), folder.prefix(of_rank_1)) == ("", "rank1:")


def test_two_files_that_grow_at_once_are_two_lines(folder: Folder) -> None:
    train = folder.write(10, 1000, 1060)
    val = folder.write(10, 1000.1, 1060, suffix=".val", number=1)
    assert (folder.prefix(train), folder.prefix(val)) == ("", "val:")
    assert folder.prefix(val, "only/val") == ""
    third = folder.write(10, 1001, 1060, number=2)
    assert folder.prefix(third) == "writer3:"
    folder.writers = folder.restarted()
    assert (folder.prefix(val), folder.prefix(train), folder.prefix(third)) == ("val:", "", "writer3:")


@pytest.mark.parametrize("pid", [10, 12])
def test_a_file_that_begins_when_the_last_has_ended_goes_on_with_its_series(folder: Folder, pid: int) -> None:
    first, second = folder.write(10, 1000, 1060), folder.write(pid, 1060.2, 1090, number=1)
    assert (folder.prefix(first), folder.prefix(second)) == ("", "")


def test_a_second_file_waits_until_it_is_known_what_it_is(folder: Folder) -> None:
    first = folder.write(10, 1000, 1060)
    folder.look()
    assert folder.writers.is_settled(first, 1000.1)
    second = folder.write(10, 1061, 1061, number=1)
    folder.look()
    assert not folder.writers.is_settled(second, 1062)
    assert folder.writers.is_settled(second, 1064.1)


def test_the_rank_of_a_process_is_in_its_last_record(tmp_path: Path) -> None:
    (tmp_path / "999999999.jsonl").write_text('{"rank": 0}\n{"rank": 3}\n{"ra')
    assert RanksOfProcesses(tmp_path).of(999999999) == 3
    assert RanksOfProcesses(tmp_path).of(999999998) is None
    assert process_of("tb/events.out.tfevents.1000.my.host.77.0.val") == 77
    assert process_of("tb/events.out.tfevents.1000.host") is None
