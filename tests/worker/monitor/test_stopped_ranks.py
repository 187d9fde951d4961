"""A rank that is stopped is named with how to continue it; one that is stopped for a moment is not."""

from __future__ import annotations

from worker.monitor.hangs import RankStatus
from worker.monitor.watch import StoppedRanks

RANKS = [RankStatus(rank=0, pid=10, step=7), RankStatus(rank=1, pid=11, step=7)]


def findings_of(status_of_11: list[str]):
    texts = iter(status_of_11)
    watch = StoppedRanks(lambda pid: next(texts) if pid == 11 else "State:\tS (sleeping)\n")
    return [watch.findings(RANKS) for _ in status_of_11]


def test_a_rank_stopped_by_a_signal_is_named_with_how_to_continue_it() -> None:
    text = "Name:\tpython\nState:\tT (stopped)\nTracerPid:\t0\n"
    first, second = findings_of([text, text])
    assert first == []
    assert "Rank 1 (pid 11 on node " in second[0].evidence
    assert "is stopped after step 7" in second[0].evidence
    assert "kill -CONT 11 on node" in second[0].fix


def test_a_rank_in_a_debugger_is_named_with_the_debugger() -> None:
    text = "State:\tt (tracing stop)\nTracerPid:\t99\n"
    assert "a debugger (pid 99) holds it" in findings_of([text, text])[1][0].evidence


def test_a_rank_stopped_for_a_moment_is_none() -> None:
    moving = "State:\tR (running)\nTracerPid:\t0\n"
    assert findings_of(["State:\tT (stopped)\n", moving, "State:\tT (stopped)\n"]) == [[], [], []]
