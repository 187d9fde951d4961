"""Which lane a test is of, and which files of `make test-real` a turn runs after a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import turn
from tests.lanes import ROOT, lane_of, lanes_in, real_files, touched, within_budget

JOURNEYS = {
    "test_browser_launch.py::test_launch_watch_reload_stop_resume_and_download",
    "test_hosts.py::test_training_goes_on_without_worker_cable_or_server",
    "test_hosts_added.py::test_host_joins_is_left_alone_the_second_time_and_gets_new_options",
    "test_kills.py::test_kill_9_of_worker_and_server_leaves_the_training_alone",
    "test_people_browser.py::test_four_people_share_one_dashboard",
    "test_up.py::test_the_demo_trains_on_two_ranks_and_is_launched_once",
}
"""The whole product in `make test`: a launch in a browser, two hosts, a node by ssh, kills, people, the demo."""
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


REAL = "pytest.mark." + "real"
"""In one word it would make this a file of `make test-real`."""
SOURCE = f"""
import pytest
LONG = pytest.mark.long
@LONG
def test_named(): ...
@{REAL}
class TestClass:
    async def test_within(self): ...
@pytest.mark.parametrize("one", [pytest.param(1, marks=pytest.mark.long), 2])
def test_some_cases(one): ...
@pytest.mark.parametrize("one", [pytest.param(1, marks=pytest.mark.long)])
def test_all_cases(one): ...
@pytest.mark.parametrize("one", [pytest.param(x, marks=pytest.mark.long) for x in range(9)])
def test_computed_cases(one): ...
"""


def test_marks_are_those_of_functions_classes_modules_and_all_cases() -> None:
    lanes = {
        "test_named": "long", "test_within": "real", "test_some_cases": "test", "test_all_cases": "long",
        "test_computed_cases": "test",
    }  # fmt: skip
    assert lanes_in(SOURCE) == lanes
    marked = lanes_in(f"{SOURCE}\npytestmark = [{REAL}, pytest.mark.skipif(False, reason='x')]")
    assert marked == {name: "long" if lane == "long" else "real" for name, lane in lanes.items()}


def test_every_file_with_the_mark_is_there() -> None:
    assert all((ROOT / file).exists() for file in real_files())


def test_make_test_makes_six_real_journeys() -> None:
    files = (ROOT / "tests/end_to_end").glob("test_*.py")
    lanes = {f"{file.name}::{name}": lane for file in files for name, lane in lanes_in(file.read_text()).items()}
    assert {name for name, lane in lanes.items() if lane == "test" and "::test_" in name} == JOURNEYS


FAILS_ONCE = """
import pathlib
def test_it():
    seen = pathlib.Path(__file__).with_suffix(".seen")
    was_seen = seen.exists()
    seen.touch()
    assert was_seen
"""


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"test_once.py": FAILS_ONCE, "test_well.py": "def test_it(): pass"}, 0),
        ({"test_once.py": FAILS_ONCE, "test_never.py": "def test_it(): assert False"}, 1),
        ({f"test_{number}.py": FAILS_ONCE for number in range(turn.MOST_UNSTEADY + 1)}, 1),
    ],
    ids=["unsteady", "failing", "too many"],
)
def test_what_fails_in_a_turn_is_run_once_more_alone(tmp_path: Path, files: dict[str, str], code: int) -> None:
    files |= {"conftest.py": "def pytest_addoption(parser): parser.addoption('--lane')", "pytest.ini": "[pytest]"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert turn.run(["-q"], [name for name in files if name.startswith("test_")], tmp_path) == code
