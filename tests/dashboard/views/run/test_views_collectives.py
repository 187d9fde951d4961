"""The Ranks tab's collectives: where each rank stands, and when it waited for the others of its node."""

from __future__ import annotations

from pathlib import Path

from dashboard.views.run.ranks import strip
from db.attempts import attempt_queries
from db.ranks.ranks import collectives_reported
from domain.collectives import Collective, NodeCollectives, RankCollectives, Wait, waits_of_node
from tests.dashboard.pages import served, texts


def record(rank: int, *called_at: float, is_open: bool = False, operation: str = "all_reduce") -> RankCollectives:
    calls = [
        Collective(
            group="0", sequence=number, operation=operation, called_at=at, retired=True, sizes=[[256]],
            dtypes=["Float"],
        )
        for number, at in enumerate(called_at, start=1)
    ]  # fmt: skip
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


def test_the_tab_names_the_rank_that_left_the_path_and_shows_nothing_before_anybody_asked(
    tmp_path: Path,
) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch("desync", 100, gpus_per_node=2)
        pages.seed.start("desync", 90)
        run_id = pages.seed.runs["desync"]
        assert "Collectives" not in [header.value for header in pages.open("run", id=run_id, tab="ranks").header]
        (attempt,) = attempt_queries.attempts(pages.service.store, run_id)
        records = [
            record(0, 10.0, is_open=True),
            record(1, 12.0, is_open=True, operation="<b>_bold_</b>"),
            RankCollectives(rank=2, is_read=False),
        ]
        node = NodeCollectives(is_stalled=True, ranks=records)
        collectives_reported(pages.service.store, pages.seed.node_ids["gpu-1"], attempt.fence, 0, node)
        page = pages.open("run", id=run_id, tab="ranks")
        (warning,) = page.warning
        assert warning.value.startswith("Rank 0 waits in all\\_reduce \\#1")
        shown = texts(page)
        assert "waits for 20 s" in shown and "did not answer" in shown
        assert "<b>" not in shown and not page.exception
