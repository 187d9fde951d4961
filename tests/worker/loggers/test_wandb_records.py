"""Every whole record of a `.wandb` file is read, wherever the damage is, and the rest is named."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.cli.importers.logged_runs import BLOCK, history, write_wandb
from worker.loggers.wandb import records
from worker.streams.events import Gap

pytest.importorskip("wandb")
ROWS = 1500
"""More than two blocks."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "run" / "run-a.wandb"
    write_wandb(path, [history(step, loss=step) for step in range(ROWS)])
    assert path.stat().st_size > 2 * BLOCK
    return path.read_bytes()


def read(folder: Path, content: bytes) -> tuple[list[int], list[Gap]]:
    """Read the steps and what is lost."""
    file, gaps = folder / "run-a.wandb", list[Gap]()
    file.write_bytes(content)
    steps = [
        int(item.value_json)
        for _, record in records(file, 0, gaps.append)
        for item in record.history.item
        if item.key == "_step"
    ]
    return steps, gaps


def ends_of(folder: Path, content: bytes) -> list[int]:
    (folder / "whole.wandb").write_bytes(content)
    return [end for end, _ in records(folder / "whole.wandb")]


def test_a_whole_file_has_no_gaps(whole: bytes, tmp_path: Path) -> None:
    assert read(tmp_path, whole) == ([*range(ROWS)], [])


@pytest.mark.parametrize("place", [0, 3, 4, 5, 6, 7, 20], ids="checksum checksum length length kind data data".split())
def test_one_wrong_byte_costs_one_record(whole: bytes, tmp_path: Path, place: int) -> None:
    begin = ends_of(tmp_path, whole)[99]
    damaged = bytearray(whole)
    damaged[begin + place] ^= 0xFF
    steps, gaps = read(tmp_path, bytes(damaged))
    assert steps == [step for step in range(ROWS) if step != 100]
    assert len(gaps) == 1 and gaps[0].start == begin and gaps[0].why == "damaged"


@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"\1"])
def test_a_lost_stretch_costs_its_records(whole: bytes, tmp_path: Path, filling: bytes) -> None:
    begin, end = BLOCK - 3000, BLOCK + 5000
    steps, gaps = read(tmp_path, whole[:begin] + filling * (end - begin) + whole[end:])
    ends = ends_of(tmp_path, whole)
    before, behind = sum(each <= begin for each in ends), sum(each <= end for each in ends) + 1
    assert steps == [*range(before), *range(behind, ROWS)]
    assert gaps and gaps[0].start <= begin and gaps[-1].end >= end


def test_a_torn_end_is_unfinished(whole: bytes, tmp_path: Path) -> None:
    ends = ends_of(tmp_path, whole)
    steps, gaps = read(tmp_path, whole[: ends[999] - 5])
    assert steps == [*range(999)]
    assert gaps == [Gap(ends[998], ends[999] - 5, "unfinished")]


def test_a_record_over_two_blocks_that_is_cut_off_is_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "run" / "run-a.wandb"
    write_wandb(path, [history(0, loss=1), history(1, text="x" * 2 * BLOCK)])
    steps, gaps = read(tmp_path, path.read_bytes()[: 2 * BLOCK + 100])
    assert steps == [0] and [gap.why for gap in gaps] == ["unfinished"]


def test_a_record_without_its_middle_is_lost_alone(tmp_path: Path) -> None:
    path = tmp_path / "run" / "run-a.wandb"
    write_wandb(path, [history(0, loss=1), history(1, text="x" * 3 * BLOCK), history(2, loss=1)])
    content = path.read_bytes()
    steps, gaps = read(tmp_path, content[:BLOCK] + content[2 * BLOCK :])
    assert steps == [0, 2] and gaps
    steps, gaps = read(tmp_path, content[:BLOCK] + bytes(BLOCK) + content[2 * BLOCK :])
    assert steps == [0, 2] and gaps


def test_whatever_is_damaged_nothing_wrong_is_read(whole: bytes, tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(60):
        damaged = bytearray(whole[: chance.randrange(len(whole))])
        for _ in range(min(len(damaged), chance.randrange(20))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        steps, _ = read(tmp_path, bytes(damaged))
        assert steps == sorted(set(steps)) and set(steps) <= set(range(ROWS))
