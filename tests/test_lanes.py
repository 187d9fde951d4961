"""Which lane a test is of, and which files of `make test-real` a turn runs after a change."""

from __future__ import annotations

import pytest

from tests.lanes import ROOT, lane_of, real_files, touched, within_budget

DURATIONS = {"tests/a/test_a.py": 50.0, "tests/a/test_b.py": 40.0, "tests/c/test_c.py": 30.0, "tests/c/test_d.py": 5.0}


@pytest.mark.parametrize(
    ("marks", "lane"), [((), "test"), (("training",), "test"), (("real",), "real"), (("real", "long"), "long")]
)
def test_the_longest_lane_decides(marks: tuple[str, ...], lane: str) -> None:
    assert lane_of(marks) == lane


def test_touched_files_come_first_and_the_budget_holds() -> None:
    for seed in "abcdefgh":
        chosen = within_budget(DURATIONS, {"tests/c/test_c.py"}, seed, 85)
        assert chosen[0] == "tests/c/test_c.py"
        assert sum(DURATIONS[file] for file in chosen) <= 85


def test_every_file_has_its_turn() -> None:
    drawn = {file for seed in range(50) for file in within_budget(DURATIONS, (), str(seed), 60)}
    assert drawn == set(DURATIONS)
    assert within_budget(DURATIONS, (), "same", 60) == within_budget(DURATIONS, (), "same", 60)


def test_a_file_is_touched_by_itself_and_by_what_its_folder_mirrors() -> None:
    files = ["tests/worker/monitor/test_hangs.py", "tests/end_to_end/test_up.py"]
    assert touched(["worker/monitor/hangs.py", "README.md"], files) == {files[0]}
    assert touched(["tests/end_to_end/test_up.py"], files) == {files[1]}


def test_every_file_with_the_mark_is_there() -> None:
    assert all((ROOT / file).exists() for file in real_files())
