"""Slow ranks by their phases: named with their cause, and nobody accused by chance."""

from __future__ import annotations

import pytest

from domain.performance.phases import PHASES, PhaseTotals, breakdown, mean_of_ranks
from domain.performance.slow_ranks import slow_rank_finding, slow_ranks
from tests.domain.performance.rank_means import ranks_of

CAUSES = [
    ("data", {"data_s": 0.1}, ""),
    ("copy", {"copy_s": 0.1}, ""),
    ("forward", {"forward_s": 0.1}, ""),
    ("checkpoint", {"checkpoint_s": 0.1}, ""),
    ("other", {"other_s": 0.1}, ""),
    ("barrier", {"other_s": 0.1}, "called_comm_s"),
    ("compute", {"forward_s": 0.02, "backward_s": 0.035, "optimizer_s": 0.003, "data_s": 0.002}, ""),
    ("cpu", {"forward_s": 0.02, "backward_s": 0.035, "cpu_wait_s": 0.05}, ""),
]


@pytest.mark.parametrize(("cause", "extra", "waits"), CAUSES, ids=lambda each: str(each)[:12])
def test_a_slow_rank_is_named_with_its_cause(cause: str, extra: dict[str, float], waits: str) -> None:
    (slow,) = slow_ranks(ranks_of({}, extra, {}, {}, noise=0.1, waits=waits), 4)
    assert (slow.rank, slow.node, slow.cause) == (1, "gpu-1", cause)
    assert 0.3 < slow.lost_share < 0.9


def test_the_sentence_says_what_all_ranks_lose() -> None:
    finding = slow_rank_finding(slow_ranks(ranks_of(*[{}] * 5, {"data_s": 0.178}, {}, {}, records=60), 8))
    assert finding is not None and finding.kind == "slow rank"
    assert finding.evidence == (
        "Rank 5 on gpu-5 waits 180 ms of 239 ms for data; the others 2 ms: all 8 ranks lose 74 % of their time."
    )
    assert "num_workers" in finding.fix


def test_two_slow_ranks_are_both_named() -> None:
    slow = slow_ranks(ranks_of({}, {"data_s": 0.1}, {}, {"data_s": 0.12}, {}), 5)
    assert [verdict.rank for verdict in slow] == [3, 1]


@pytest.mark.parametrize(
    ("why", "ranks", "world_size"),
    [
        ("nobody is slow", ranks_of({}, {}, noise=0.3), 2),
        ("a rank is missing", ranks_of({}, {"data_s": 0.1}), 3),
        ("a rank alone", ranks_of({"data_s": 0.1}), 1),
        ("too early", ranks_of({}, {"data_s": 0.1}, records=4), 2),
        ("half of them", ranks_of({}, {}, {"data_s": 0.1}, {"data_s": 0.1}, {"data_s": 0.1}), 5),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_it_abstains(why: str, ranks: list[PhaseTotals], world_size: int) -> None:
    assert slow_ranks(ranks, world_size) == []
    assert slow_rank_finding([]) is None


def test_ranks_that_do_not_wait_for_each_other_are_not_compared() -> None:
    ranks = ranks_of({}, {"data_s": 0.1})
    alone = [
        PhaseTotals(r.rank, r.node, r.steps, r.walls, {n: t for n, t in r.seconds.items() if "comm" not in n})
        for r in ranks
    ]
    assert slow_ranks(alone, 2) == []


def test_one_long_step_accuses_nobody() -> None:
    first, second = ranks_of({}, {})
    late = [total + 30.0 * (number > 10) for number, total in enumerate(second.seconds["data_s"])]
    waited = [total + 30.0 * (number > 10) for number, total in enumerate(first.seconds["exposed_comm_s"])]
    second = PhaseTotals(1, "b", second.steps, second.walls, {**second.seconds, "data_s": late})
    first = PhaseTotals(0, "a", first.steps, first.walls, {**first.seconds, "exposed_comm_s": waited})
    assert slow_ranks([first, second], 2) == []


def test_the_phases_add_up_to_the_step() -> None:
    totals = PhaseTotals(0, "a", [11, 21], [1.0, 2.0], {"data_s": [1.0, 1.5], "other_s": [0.0, 0.5]})
    whole, newer = breakdown(totals, is_whole=True), breakdown(totals, is_whole=False)
    assert whole is not None and (whole["steps"], whole["step_s"], whole["data_s"]) == (20, 0.1, 0.075)
    assert newer is not None and (newer["steps"], newer["step_s"], newer["copy_s"]) == (10, 0.1, 0.0)
    assert breakdown(PhaseTotals(0, "a", [11], [1.0], {}), is_whole=False) is None


def test_the_mean_step_of_a_run_is_that_of_its_ranks():
    means = mean_of_ranks(ranks_of({}, {"data_s": 0.1}))
    assert means["data_s"] == pytest.approx(0.052) and means["exposed_comm_s"] == pytest.approx(0.051)
    assert means["step_s"] == pytest.approx(sum(means[name] for name in PHASES)) == pytest.approx(0.161)
    assert mean_of_ranks([]) == {}
