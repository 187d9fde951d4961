"""The benchmarks run, in small; how long anything takes is not asserted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import figures, misses, pages
from benchmarks.figures import Cost, Figure, Spread, in_turns, ratios, write
from benchmarks.table import DOES_LESS, document, short, table
from tests.end_to_end.browsers import CHROMIUM
from tests.end_to_end.hosts import why_not

ROOT = Path(__file__).parent.parent


def test_acts_take_turns_in_an_order_that_rotates() -> None:
    order: list[str] = []

    def act(name: str) -> float:
        order.append(name)
        return len(order)

    measured = in_turns({"a": lambda: act("a"), "b": lambda: act("b")}, 3)
    assert "".join(order) == "abbaab"
    assert measured == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_a_ratio_is_that_of_each_round() -> None:
    assert ratios([2.0, 9.0, 8.0], [1.0, 3.0, 2.0]) == Spread(2.5, 3.0, 3.5)
    assert Spread.of([4.0]) == Spread(4.0, 4.0, 4.0)


@pytest.mark.parametrize(("better", "is_met"), [("more", True), ("less", False)])
def test_a_target_has_a_direction(better, is_met) -> None:
    assert Figure("x", "2", "peer", "1", Spread(1.9, 2.0, 2.1), 1.5, better).is_met is is_met


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    cost = Cost("reading", "points", {size: 3e-4 * size**power for size in (10, 100, 1000, 10_000)})
    assert cost.exponent == pytest.approx(power)


def test_figures_are_written_and_drawn_as_a_table(tmp_path: Path) -> None:
    figure = Figure("reading", "9/s", "peer", "3/s", Spread(2.9, 3.0, 3.1), 2)
    write(tmp_path / "reading.json", [figure, Cost("reading", "points", {10: 0.001, 1000: 0.1})])
    lines = table([tmp_path / "reading.json"]).splitlines()
    assert lines[2] == "| reading | 9/s | peer | 3/s | 3 (2.9-3.1) | ≥ 2 | met |"
    assert "| **Reading** (" in document([tmp_path / "reading.json"])
    assert lines[-1] == "reading by points: 10: 1 ms, 1,000: 100 ms; exponent 1.00"


def test_measurements_run_in_small() -> None:
    run_in_small("event_files")


@pytest.mark.long
def test_measurement_of_growth_runs_in_small() -> None:
    run_in_small("ingestion_growth")


@pytest.mark.long
def test_those_that_start_programs_and_fill_stores_run_in_small() -> None:
    run_in_small("command_line", "many_runs", "merging")


@pytest.mark.long
@pytest.mark.skipif(shutil.which(CHROMIUM) is None, reason="needs Chromium (apt-get install chromium)")
def test_those_in_a_browser_run_in_small() -> None:
    run_in_small("comparison")


@pytest.mark.training
@pytest.mark.long
@pytest.mark.parametrize("name", ["busy_machine", "overhead", "watching", "probe", "checkpoint_stall", "lost_node"])
def test_measurement_beside_a_training_runs_in_small(name: str) -> None:
    if name == "lost_node" and (reason := why_not()):
        pytest.skip(reason)
    run_in_small(name)


@pytest.mark.long
def test_measurement_of_many_clients_runs_in_small() -> None:
    run_in_small("live_page", "live_runs")


def run_in_small(*names: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in names:
        measured = json.loads((ROOT / "benchmarks" / "results" / "quick" / f"{name}.json").read_text())
        rows = measured["figures"] + measured["costs"]
        assert rows and all(row["what"] in done.stdout for row in rows)


def test_the_pages_hold_what_was_measured() -> None:
    paths = sorted(figures.RESULTS.glob("*.json"))
    assert (ROOT / "benchmarks" / "RESULTS.md").read_text() == document(paths)
    readme = (ROOT / "README.md").read_text()
    assert pages.with_table(readme, paths) == readme, "write it with: python -m benchmarks --write"


def test_a_missed_row_says_why_and_a_met_one_does_not(tmp_path: Path) -> None:
    for median, is_missed in ((1.0, True), (3.0, False)):
        ratio = Spread(median, median, median)
        write(tmp_path / "chart.json", [Figure("reading", "9/s", "peer", "3/s", ratio, 2)])
        assert (misses.WHY["chart"] in document([tmp_path / "chart.json"])) is is_missed


def test_readme_shows_the_rows_people_feel_each_with_the_hardest_peer(tmp_path: Path) -> None:
    rows = [
        Figure(what, "9/s", peer, "3/s", Spread(m, m, m), 2)
        for what in (*pages.FELT, "unfelt")
        for peer, m in (("slow", 9), ("fast", 1))
    ]
    write(tmp_path / "reading.json", rows)
    table_of_it = pages.with_table(f"a{pages.BEGIN}old{pages.END}z", [tmp_path / "reading.json"])
    assert "slow" not in table_of_it and "old" not in table_of_it and "unfelt" not in table_of_it
    assert table_of_it.count("| 9/s | fast: 3/s | 1 |") == len(pages.FELT) == 6
    assert table_of_it[0] == "a" and table_of_it[-1] == "z"


def test_rows_people_feel_are_measured() -> None:
    paths = sorted(figures.RESULTS.glob("*.json"))
    assert {row["what"] for row in pages.felt(paths)} == set(pages.FELT)
    assert {(row["what"], row["peer"]) for row in pages.felt(paths)} >= set(DOES_LESS)


def test_readme_says_how_many_times_better_and_what_a_peer_leaves_out(tmp_path: Path) -> None:
    (name, peer), less = next(iter(DOES_LESS.items()))
    write(tmp_path / "times.json", [Figure(name, "4 (3-5) s", peer, "2 s", Spread(1, 2, 3), 1, "less")])
    shown = short(json.loads((tmp_path / "times.json").read_text())["figures"])
    assert shown.splitlines()[-1] == f"| {name} | 4 s | {peer} ({less}): 2 s | 0.5 |"


def test_an_unknown_measurement_is_refused_with_the_known_ones() -> None:
    command = [sys.executable, "-m", "benchmarks", "draughts"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no measurement is named draughts; there are: back_to_training, busy_machine" in done.stderr
