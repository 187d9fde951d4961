"""The Ranks tab marks the rank that the finding names, by the same rule."""

from __future__ import annotations

from pathlib import Path

from db.attempts import attempt_queries
from domain.messages import PointBatch
from domain.performance.phases import TAG
from tests.dashboard.pages import Pages, served, texts
from tests.db import task_streams
from tests.domain.performance.rank_means import ranks_of


def send(pages: Pages, label: str, *extra: dict[str, float]) -> None:
    """The totals of a rank for each argument, as its node sends them, with the step time that the tab lists."""
    (attempt,) = attempt_queries.attempts(pages.service.store, pages.seed.runs[label])
    series = {}
    for totals in ranks_of(*extra):
        for name, seconds in totals.seconds.items():
            series[TAG.format(rank=totals.rank, name=name)] = list(
                zip(totals.steps, seconds, totals.walls, strict=True)
            )
        for name in ("step_time_s", "data_wait_s"):
            series[f"rank{totals.rank}/{name}"] = [(totals.steps[-1], 0.1 + totals.rank, totals.walls[-1])]
    batch = PointBatch(path="probe/7.jsonl", generation=0, start=0, end=10, source="probe", series=series)
    task_streams.points_arrived(pages.service.store, pages.seed.node_ids["gpu-1"], attempt.fence, 0, batch)


def test_the_tab_marks_the_rank_that_the_finding_names_and_no_other(tmp_path: Path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 4)
        for label in ("slow", "even"):
            pages.seed.launch(label, 100, gpus_per_node=2)
            pages.seed.start(label, 90)
        send(pages, "slow", {}, {"forward_s": 0.1})
        send(pages, "even", {}, {})  # rank 1 waits longer for data in its last step alone
        marked = texts(pages.open("run", id=pages.seed.runs["slow"], tab="ranks"))
        assert "| 1 ◂ the others wait \\(forward\\) |" in marked and "| 0 | gpu\\-1 |" in marked
        assert "◂" not in texts(pages.open("run", id=pages.seed.runs["even"], tab="ranks"))
