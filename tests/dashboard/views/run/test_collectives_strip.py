"""Waits in collectives are counted among the ranks of one node."""

from __future__ import annotations

from dashboard.views.run.collectives import strip
from domain.collectives.records import Collective, RankCollectives
from domain.collectives.waits import Wait, waits_of_node


def record(rank: int, *called_at: float, is_open: bool = False) -> RankCollectives:
    calls = [
        Collective(group="0", sequence=number, operation="all_reduce", called_at=at, retired=True)
        for number, at in enumerate(called_at, start=1)
    ]
    if is_open:
        calls[-1] = calls[-1].model_copy(update={"retired": False})
    return RankCollectives(rank=rank, world_size=2, at=30.0, calls=calls)


def test_a_rank_waits_for_the_last_one_and_in_an_open_call_until_it_was_asked() -> None:
    waits = waits_of_node([record(0, 10.0, 20.0, is_open=True), record(1, 13.0)])
    assert [wait.waited_s for wait in waits[0]] == [3.0, 10.0]
    assert [wait.waited_s for wait in waits[1]] == [0.0]


def test_the_strip_shows_when_a_rank_waited() -> None:
    (first, last) = waits_of_node([record(0, 0.0, 15.0)])[0]
    marks = strip([Wait(first.call, 15.0), Wait(last.call, 0.0)], 0.0, 30.0)
    assert marks == "█" * 30 + "▁" + "·" * 29
    assert strip([], 0.0, 0.0) == ""
