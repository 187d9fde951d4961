"""What ranks left is enough for a verdict when one was aborted and the other was ended by the launcher."""

from __future__ import annotations

import json
from pathlib import Path

from domain.clock import SYSTEM_CLOCK
from domain.collectives import judge
from domain.messages import Finding, RankError, Reason, TaskReport
from worker.attempt.reports import with_desync
from worker.monitor.collective_watch import read_left_records
from worker.monitor.hangs import RankStatus

GLOO = (
    "RuntimeError: [enforce fail at /w/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 1056 vs 12. "
    "Received data\n"
)


def call(size: int) -> dict:
    return {
        "process_group": ["0", "default_pg"], "collective_seq_id": 3, "profiling_name": "gloo:all_reduce",
        "input_sizes": [[size]], "input_dtypes": ["Float"], "retired": False, "state": "started", "is_p2p": False,
        "time_created_ns": 10**9,
    }  # fmt: skip


def leave(folder: Path, pid: int, size: int, line: int) -> None:
    (folder / "probe" / f"{pid}.calls").write_text(json.dumps({"version": "2.10", "entries": [call(size)]}))
    stack = f'(most recent call first):\n  File "/home/ana/train.py", line {line} in train\n'
    (folder / "probe" / f"{pid}.stack").write_text(f"Current thread 0x1 {stack}")


def test_the_calls_that_were_kept_when_a_rank_was_aborted_name_both(tmp_path: Path) -> None:
    for name in ("probe", "logs"):
        (tmp_path / name).mkdir()
    leave(tmp_path, 10, 10, 9)
    leave(tmp_path, 11, 264, 14)
    (tmp_path / "logs" / "rank0.err").write_text(GLOO)
    statuses = [RankStatus(rank=rank, pid=10 + rank, world_size=2) for rank in (0, 1)]
    records = read_left_records(tmp_path / "probe", tmp_path / "logs", statuses, {}, SYSTEM_CLOCK)
    assert [record.failure[:22] for record in records] == ["enforce fail at /w/glo", ""]
    verdict = judge({record.rank: record for record in records}, is_stalled=True)
    assert verdict is not None
    assert verdict.kind == "size"
    assert "all_reduce #3 (40 B, Float, train.py line 9 in train)" in verdict.sentence
    assert "all_reduce #3 (1.03 KiB, Float, train.py line 14 in train)" in verdict.sentence


def test_a_failure_begins_with_where_the_collectives_differ_and_keeps_its_own_text() -> None:
    end = TaskReport(state="failed", reason=Reason.SCRIPT_ERROR, message="rank 0 on n1: EnforceNotMet: 1056 vs 12")
    desync = Finding(kind="collectives differ", evidence="Rank 0 waits in all_reduce #3.", fix="Check the lines.")
    explained = with_desync(end, desync)
    assert explained.message == "Rank 0 waits in all_reduce #3. rank 0 on n1: EnforceNotMet: 1056 vs 12"
    assert explained.next_step == "Check the lines."
    assert with_desync(end, None) == end
    left = end.model_copy(update={"error": RankError(rank=1, exit_code=0)})
    assert with_desync(left, desync) == left
    assert with_desync(TaskReport(state="stopped"), desync) == TaskReport(state="stopped")
