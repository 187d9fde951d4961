"""Desynchronised ranks are told apart from records that torch 2.13 wrote in real gloo ranks (`desync.py`, 3 ranks)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from domain.collectives import Collective, RankCollectives, judge
from worker.monitor.collective_watch import fail_last, parse_calls

RECORDED = json.loads((Path(__file__).parent / "flight_records.json").read_text())
GROUPS = {"0": [0, 1, 2], "1": [0, 1, 2]}


def records_of(kind: str, ranks: Sequence[int] = (0, 1, 2)) -> dict[int, RankCollectives]:
    """The recorded ranks as a worker reports them."""
    return {rank: _record(rank, RECORDED[kind][str(rank)], kind) for rank in ranks}


def _record(rank: int, recorded: dict, kind: str) -> RankCollectives:
    failure = recorded.get("failure", "")
    calls = fail_last(parse_calls(recorded.get("record", {})), failure)
    line = "{} line {} in {}".format(*recorded["stack"][0]) if recorded["stack"] else ""
    return RankCollectives(
        rank=rank, world_size=3, at=calls[-1].called_at + 60 if calls else 0.0, calls=calls, groups=GROUPS, line=line,
        doing="data" if kind == "loader" and rank == 2 else "", ended=recorded["ended"], failure=failure,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "verdict", "sentence"),
    [
        ("skipped", "order", r"^Ranks 0-1 wait in all_reduce #13 \(3\.91 KiB, .* line 27 in gradients\); rank 2 called"
         r" all_gather #13 \(16 B, .* line 31 in metrics\), which the others call next"),
        ("swapped", "order", r"rank 2 called all_gather #13 .*, or calls them in another order"),
        ("shape", "size", r"^Ranks 0-1 wait in all_reduce #13 .*; rank 2 ended in a collective of another size"),
        ("dtype", "dtype", r"rank 2 called all_reduce #13 \(7\.81 KiB, Double, desync\.py line 52 in train\)"),
        ("group", "group", r"rank 2 called all_reduce #1 of group evaluation .*line 55"),
        ("exit", "left", r"^Ranks 0-1 wait in all_reduce #13 .*; rank 2 left after all_gather #12"),
        ("extra", "operation", r"rank 2 called broadcast #13 \(12 B, Float, desync\.py line 61 in train\)\.$"),
        ("loader", "loader", r"rank 2 has not come: it is still in its data loader after all_gather #12 .*line 22"),
    ],
)  # fmt: skip
def test_each_desync_names_the_rank_its_call_and_its_line(kind: str, verdict: str, sentence: str) -> None:
    judgement = judge(records_of(kind), is_stalled=True)
    assert judgement is not None
    assert (judgement.kind, judgement.ranks) == (verdict, [2])
    assert re.search(sentence, judgement.sentence), judgement.sentence


def test_equal_ranks_are_not_accused() -> None:
    assert judge(records_of("none"), is_stalled=True) is None
    assert judge({}, is_stalled=True) is None


@pytest.mark.parametrize("kind", ["loader", "exit", "group"])
def test_a_rank_that_may_still_come_is_not_accused(kind: str) -> None:
    assert judge(records_of(kind), is_stalled=False) is None


def test_calls_that_differ_are_a_mistake_before_the_ranks_count_as_hung() -> None:
    records = records_of("extra")
    judgement = judge(records, is_stalled=False)
    assert judgement is not None and judgement.ranks == [2]
    just_now = {rank: record.model_copy(update={"at": record.at - 58}) for rank, record in records.items()}
    assert judge(just_now, is_stalled=False) is None


def test_alignment_names_the_rank_that_left_its_habit() -> None:
    for kind in ("skipped", "extra", "dtype"):
        judgement = judge(records_of(kind, [0, 2]), is_stalled=True)
        assert judgement is not None and judgement.ranks == [2], kind


def test_two_ranks_without_a_habit_are_both_named() -> None:
    records = {rank: _waiting(rank, operation) for rank, operation in enumerate(("all_reduce", "broadcast"))}
    judgement = judge(records, is_stalled=True)
    assert judgement is not None and (judgement.kind, judgement.ranks) == ("operation", [0, 1])
    assert (
        judgement.sentence == "Rank 0 waits in all_reduce #1 (40 B, Float); rank 1 called broadcast #1 (40 B, Float)."
    )


def test_a_rank_that_does_not_answer_is_named_and_one_nobody_knows_of_is_not() -> None:
    records = {rank: _waiting(rank, "all_reduce", world_size=3) for rank in (0, 1)}
    assert judge(records, is_stalled=True) is None
    records[2] = RankCollectives(rank=2, world_size=3, is_read=False, line="train.py line 3 in f")
    judgement = judge(records, is_stalled=True)
    assert judgement is not None and (judgement.kind, judgement.ranks) == ("missing", [2])
    assert judgement.sentence.endswith("rank 2 has not come and does not answer (train.py line 3 in f).")


def test_who_waits_in_another_group_for_the_late_rank_is_not_accused() -> None:
    """Ranks 0 and 1 wait for 2, which waits in its own group for 3: that one is late."""
    groups = {"0": [0, 1, 2], "1": [2, 3]}
    records = {rank: _waiting(rank, "all_reduce", groups=groups) for rank in (0, 1)}
    records[2] = _waiting(2, "all_gather", group="1", groups=groups)
    records[3] = RankCollectives(rank=3, world_size=4, groups=groups, doing="data")
    judgement = judge(records, is_stalled=True)
    assert judgement is not None and (judgement.kind, judgement.ranks) == ("loader", [3])


def _waiting(rank: int, operation: str, world_size: int = 2, group: str = "0", groups=None) -> RankCollectives:
    description = "default_pg" if groups is None else "part"
    call = Collective(
        group=group, description=description, sequence=1, operation=operation, sizes=[[10]], dtypes=["Float"]
    )
    return RankCollectives(rank=rank, world_size=world_size, calls=[call], groups=groups or {}, at=100.0)
