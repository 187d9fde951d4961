"""A printed log read on, to its end, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.virtual_time import VirtualTime
from tests.worker.streams.printed_series import bar
from worker.streams.printed import PrintedTail


def test_a_log_is_read_on_from_where_the_server_is_with_the_steps_it_had(tmp_path: Path) -> None:
    log = tmp_path / "rank0.err"
    first = "".join(bar(step, 10, "loss=1.0") for step in (5, 10)) + bar(5, 10, "loss=0.9") + "\n"
    log.write_text(first)
    tail = PrintedTail(log, clock=VirtualTime(wall=5.0))
    assert [step for step, _, _ in tail.read().series["loss"]] == [5, 10, 15]
    with log.open("a") as file:
        file.write(bar(10, 10, "loss=0.8") + "\n")
    restarted = PrintedTail(log, offset=tail.offset, clock=VirtualTime(wall=9.0))
    for reader in (tail, restarted):
        piece = reader.read()
        assert (piece.start, piece.end) == (len(first.encode()), log.stat().st_size)
        assert [step for step, _, _ in piece.series["loss"]] == [20]


def test_a_log_is_read_to_its_very_end_when_the_run_is_over(tmp_path: Path) -> None:
    log = tmp_path / "rank0.out"
    log.write_text("step 1 loss 2.0\nstep 2 loss 1.0")
    tail = PrintedTail(log, clock=VirtualTime(wall=5.0))
    assert tail.read().series == {"loss": [(1, 2.0, 5.0)]}
    assert tail.read().end == 16
    tail.final = True
    assert tail.read().series == {"loss": [(2, 1.0, 5.0)]}
    assert tail.offset == log.stat().st_size


def test_going_back_reads_the_same_again(tmp_path: Path) -> None:
    log = tmp_path / "rank0.out"
    log.write_text("epoch 1 step 5 loss 2.0\nepoch 2 step 5 loss 1.0\n")
    tail = PrintedTail(log, clock=VirtualTime(wall=5.0))
    tail.read()
    tail.offset = 24
    assert tail.read().series == {"loss": [(10, 1.0, 5.0)], "epoch": [(10, 2.0, 5.0)]}


def test_a_log_that_grows_faster_than_it_is_read_is_read_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.streams.printed.MAX_BEHIND_BYTES", 1000)
    monkeypatch.setattr("worker.streams.printed.RECALL_BYTES", 100)
    log = tmp_path / "rank0.out"
    log.write_text("".join(f"step {step} loss 1.0\n" for step in range(1000)))
    tail = PrintedTail(log)
    piece = tail.read()
    assert (piece.start, piece.end, piece.series) == (0, log.stat().st_size - 100, {})
    assert "no series are read" in (piece.notice or "")
    assert [step for step, _, _ in tail.read().series["loss"]] == [995, 996, 997, 998, 999]
    assert tail.offset == log.stat().st_size


def test_a_log_that_is_gone_says_so(tmp_path: Path) -> None:
    piece = PrintedTail(tmp_path / "none").read()
    assert (piece.start, piece.end) == (0, 0) and "could not be read" in (piece.notice or "")
