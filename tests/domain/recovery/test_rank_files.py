"""Which of several ranks' checkpoints of one moment a run goes on from."""

from __future__ import annotations

import pytest

from domain.recovery import SavedFile, rank_0s, rank_in


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("work/rank1.pt", 1),
        ("work/model_rank_3.pt", 3),
        ("work/outputs/2026-11-25/08-30-01-1/last.pt", 1),
        ("work/run-2/last.pt", 2),
        ("work/epoch_2/last.pt", None),
        ("work/checkpoint-20/model.pt", None),
        ("work/last.pt", None),
        ("work/model_2.pt", None),
    ],
)
def test_the_rank_that_a_path_names(path: str, rank: int | None) -> None:
    assert rank_in(path) == rank


@pytest.mark.parametrize(
    "path", ["work/rank{}.pt", "work/outputs/2026-11-25/08-30-0{}-{}/last.pt", "work/rank_{}/last.pt"]
)
def test_rank_0s_of_the_same_moment(path: str) -> None:
    ranks = [SavedFile(path.replace("{}", str(rank)), None, 100.0 + rank) for rank in range(4)]
    assert rank_0s(ranks[3], ranks) == ranks[0]
    later = SavedFile(ranks[1].path, None, 200.0)
    assert rank_0s(later, [*ranks, later]) == later


def test_a_later_epoch_is_no_other_rank() -> None:
    first, second = (SavedFile(f"work/model_{epoch}.pt", None, 100.0 + epoch) for epoch in (1, 2))
    assert rank_0s(second, [first, second]) == second
