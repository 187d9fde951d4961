"""Series of several writers in one folder: told apart by the process and by whether they grow at once."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event

from tests.virtual_time import VirtualTime
from worker.streams.events import CHECKSUM, HEADER, masked_crc
from worker.streams.mirror import MirroredFile
from worker.streams.writers import RanksOfProcesses, Writers, process_of

NAME = "events.out.tfevents.{second}.a.b.host.{pid}.{number}{suffix}"


class Folder:
    """A working directory with event files, each with the times of its first and last event."""

    def __init__(self, root: Path, ranks: dict[int, int]) -> None:
        self.root, self.ranks = root, ranks
        self.holders: dict[Path, list[int]] = {}
        self.time = VirtualTime(wall=1001.0)
        self.writers = self.restarted()

    def restarted(self) -> Writers:
        return Writers(
            self.root / "writers.json", lambda pid: self.ranks.get(pid or 0), 0, clock=self.time, holders=self.held
        )

    def held(self, files: Collection[Path]) -> dict[Path, list[int]]:
        return {file: pids for file, pids in self.holders.items() if file in files}

    def write(
        self, pid: int, begin: float, end: float, *, suffix: str = "", number: int = 0, folder: str = "tb",
        name: str = NAME, **last_steps: int,
    ) -> str:  # fmt: skip
        path = f"work/{folder}/{name.format(second=int(begin), pid=pid, number=number, suffix=suffix)}"
        source = self.root / path
        source.parent.mkdir(parents=True, exist_ok=True)
        events = [Event(wall_time=begin, file_version="brain.Event:2")]
        for tag, step in last_steps.items():
            events.append(Event(wall_time=end, step=step))
            events[-1].summary.value.add(tag=tag, simple_value=1.0)
        source.write_bytes(b"".join(map(record, events)))
        os.utime(source, (end, end))
        return path

    def look(self) -> None:
        files = sorted((self.root / "work").rglob("*tfevents*"), key=lambda file: file.name)
        self.writers.look(
            MirroredFile(file.relative_to(self.root).as_posix(), file, file.stat().st_ino, 0, b"") for file in files
        )

    def prefix(self, path: str, tag: str = "loss") -> str:
        self.look()
        return self.writers.prefix(tag, path, has_own_folder=False)


def record(event: Event) -> bytes:
    data = event.SerializeToString()
    length = len(data).to_bytes(8, "little")
    return HEADER.pack(len(data), masked_crc(length)) + data + CHECKSUM.pack(masked_crc(data))


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


# -- writers whose names do not tell their process --------------------------------------------------

X = "events.out.tfevents.{second}.host{suffix}"
"""A file's name as tensorboardX makes it."""


def test_who_has_a_file_open_tells_its_rank(folder: Folder) -> None:
    of_rank_1 = folder.write(0, 1000, 1060, folder="logs/a", name=X)
    folder.holders[folder.root / of_rank_1] = [11]
    folder.look()
    assert not folder.writers.is_rank_0s(of_rank_1) and folder.writers.is_settled(of_rank_1, 1000.1)
    folder.holders.clear()  # it is closed, and the worker starts again
    folder.writers = folder.restarted()
    of_rank_0 = folder.write(0, 1003, 1060, folder="logs/b", name=X)
    folder.holders[folder.root / of_rank_0] = [10, 99]  # 99: a child of rank 0 that has no rank
    folder.time.advance(1)
    folder.look()
    assert [folder.writers.is_rank_0s(path) for path in (of_rank_0, of_rank_1)] == [True, False]


def test_a_file_that_nobody_has_open_waits_for_whom_it_may_be_of(folder: Folder) -> None:
    path = folder.write(0, 1000, 1060, name=X)
    folder.look()
    assert not folder.writers.is_settled(path, 1001) and folder.writers.is_settled(path, 1003)
    assert folder.writers.is_rank_0s(path)


def test_a_forked_rank_shares_the_file_of_the_lower_one(folder: Folder) -> None:
    path = folder.write(0, 1000, 1060, name=X)
    folder.holders[folder.root / path] = [11, 10]
    folder.look()
    assert folder.writers.is_rank_0s(path)


# -- a folder for every epoch -----------------------------------------------------------------------


def origins(folder: Folder, first_step: int, *paths: str) -> list[str]:
    folder.look()
    return [folder.writers.origin(path, {"loss": first_step + 10 * at}) for at, path in enumerate(paths)]


def test_a_folder_for_every_epoch_goes_on_with_the_series_of_the_first(folder: Folder) -> None:
    epochs = [
        folder.write(10, 1000 + 10 * epoch, 1009 + 10 * epoch, folder=f"runs/epoch{epoch}", loss=10 * epoch + 9)
        for epoch in range(3)
    ]
    assert origins(folder, 0, *epochs) == [epochs[0]] * 3
    folder.writers = folder.restarted()
    assert origins(folder, 999, *epochs) == [epochs[0]] * 3


def test_folds_that_count_anew_stay_apart(folder: Folder) -> None:
    folds = [folder.write(10, 1000 + 10 * fold, 1009 + 10 * fold, folder=f"fold{fold}", loss=9) for fold in range(2)]
    folder.look()
    assert [folder.writers.origin(path, {"loss": 0}) for path in folds] == folds


@pytest.mark.parametrize(
    ("pid", "begin", "other"),
    [
        pytest.param(10, 1003, "epoch1", id="both grow at once"),
        pytest.param(11, 1010, "epoch1", id="of another process"),
        pytest.param(10, 1010, "validation", id="another name"),
    ],
)
def test_other_folders_have_series_of_their_own(folder: Folder, pid: int, begin: int, other: str) -> None:
    first = folder.write(10, 1000, 1009, folder="epoch0", loss=9)
    second = folder.write(pid, begin, 1019, folder=other, loss=19)
    assert origins(folder, 0, first, second) == [first, second]


def test_a_file_that_is_seen_late_is_asked_for_all_the_same(folder: Folder) -> None:
    late = folder.write(0, 900, 1060, folder="logs/a", name=X)
    folder.holders[folder.root / late] = [11]
    folder.look()
    assert not folder.writers.is_rank_0s(late)
