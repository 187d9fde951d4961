"""A rounded epoch is placed by the bar or the line beside it, in its own row or in the rank's other log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.streams.printed_series import bar, series_of
from worker.streams.printed import PrintedTail
from worker.streams.printed_beside import last_step


@pytest.mark.parametrize(("out", "err"), [("rank0.out", "rank0.err"), ("stdout.log", "stderr.log")])
def test_lines_of_one_rounded_epoch_stand_where_the_bar_is(tmp_path: Path, out: str, err: str) -> None:
    tail, steps = PrintedTail(tmp_path / out), []
    for step in range(5, 30, 5):
        with (tmp_path / err).open("a") as file:
            file.write(bar(step, 100, "").replace(", ]", "]"))
        with (tmp_path / out).open("a") as file:
            file.write(f"{{'loss': {1 / step:.4f}, 'epoch': {step / 5000:.2f}}}\n")
        steps += [at for at, _, _ in tail.read().series["loss"]]
    assert steps == [5, 10, 15, 20, 25]


def test_lines_that_are_read_at_once_are_spread_up_to_the_bar(tmp_path: Path) -> None:
    bars = "".join(bar(step, 100, "").replace(", ]", "]") for step in range(1, 61))
    (tmp_path / "rank0.err").write_text(bars)
    lines = [f"{{'loss': 0.5, 'epoch': {step / 5000:.2f}}}\n" for step in range(10, 61, 10)]
    (tmp_path / "rank0.out").write_text("".join(lines))
    series = PrintedTail(tmp_path / "rank0.out").read().series
    assert [step for step, _, _ in series["loss"]] == [10, 20, 30, 40, 50, 60]


def test_a_line_in_the_row_of_a_bar_stands_at_its_step() -> None:
    row = bar(40, 200, "").replace(", ]", "]") + "{'loss': 0.5, 'epoch': 0.0}\n"
    assert series_of(row) == {"loss": [(40, 0.5)]}


def test_without_a_bar_the_epoch_is_the_place() -> None:
    assert series_of("{'loss': 0.5, 'epoch': 0.25}\n") == {"loss": [(250, 0.5)]}


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (b"\r  7%|#   | 7/100 [00:01<00:09, 1.0it/s]", 7),
        (b"\r  7%|#   | 7/100 [00:01<00:09, 1.0it/s]\r 50%|##  | 5/10 [00:01<00:09, 1.0it/s]", 7),
        (b"\r 10%|#   | 10/100 [00:01<00:09, 1it/s] x step=10, y\r 11%|#   | 11/100 [00:01<00:09, 1it/s]", 10),
        (b"\r 10%|#   | 10/100 [00:01<00:09, 1it/s] x step=10, y\r 15%|#   | 15/100 [00:01<00:09, 1it/s]", 15),
        (b"Map:  7%|#   | 7/1000 [00:01<00:09, 1.0it/s]", None),
        (b"step=10, nothing else", None),
        (b"", None),
    ],
)
def test_the_longest_bar_counts_or_a_line_shortly_before_it(text: bytes, step: int | None) -> None:
    assert last_step(text) == step
