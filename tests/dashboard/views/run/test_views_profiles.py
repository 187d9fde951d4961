"""The Ranks tab's profiles: the button and its cost, the overview, a second profile beside the first."""

from __future__ import annotations

from pathlib import Path

from db.models import Attempt, File, Node, ProfiledRank
from domain.profiles.records import Gaps, Operator, Overview
from tests.dashboard.pages import served, texts


def recorded(pages, fence: int, profile_id: str, seconds: float) -> None:
    name = f"profiles/{profile_id}/trace0.json.gz"
    overview = Overview(
        steps=10, seconds=seconds, data_s=0.0, communication_s=0.0, exposed_communication_s=0.0, gaps=Gaps(),
        operators=[Operator(name="aten::<b>mm</b>", calls=10, self_s=0.5, total_s=0.5)], advice=["Wait less."],
    )  # fmt: skip
    row = ProfiledRank(
        profile_id=profile_id, rank=0, fence=fence, node_rank=0, requested_at=seconds, first_step=50, steps=10,
        until=1.0, state="recorded", why="", file=name, size_bytes=5, step_s_before=0.08,
        overview=overview.model_dump(mode="json"), flame=[],
    )  # fmt: skip
    failed = ProfiledRank(
        profile_id=profile_id, rank=1, fence=fence, node_rank=0, requested_at=seconds, first_step=50, steps=10,
        until=1.0, state="failed", why="the script has a profiler of its own open",
    )  # fmt: skip
    with pages.service.store.write() as session:
        session.add_all([row, failed, File(fence=fence, node_rank=0, path=name, generation=0, size_bytes=5)])


def test_a_trace_without_an_overview_can_be_opened_and_downloaded(tmp_path: Path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        run_id = pages.seed.launch("trained", 100, gpus_per_node=2)
        pages.seed.start("trained", 90)
        with pages.service.store.write() as session:
            fence = session.query(Attempt.fence).scalar()
        recorded(pages, fence, "a" * 10, 1.0)
        why = "its trace could not be summarised (exit code 1); open it in Perfetto"
        with pages.service.store.write() as session:
            row = session.get_one(ProfiledRank, ("a" * 10, 0))
            row.overview, row.why = None, why
        page = pages.open("run", id=run_id, tab="ranks")
        shown = texts(page).replace("\\", "")
        assert not page.exception and f"Rank 0: {why}." in shown
        assert f"Rank 0: [Open in Perfetto](/perfetto/{run_id}/?profile={'a' * 10}&rank=0)" in shown
        assert f"/api/runs/{run_id}/profiles/{'a' * 10}/ranks/0/trace" in shown


def test_profiles_are_shown_beside_each_other(tmp_path: Path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch("trained", 100, gpus_per_node=2)
        pages.seed.start("trained", 90)
        run_id = pages.seed.runs["trained"]
        assert "Profile" not in [h.value for h in pages.open("run", id=run_id, tab="ranks").header]
        with pages.service.store.write() as session:
            fence = session.query(Attempt.fence).scalar()
            assert session.query(Node).count() == 1
        recorded(pages, fence, "a" * 10, 1.0)
        page = pages.open("run", id=run_id, tab="ranks")
        assert not page.exception and "Profile" in [header.value for header in page.header]
        assert "<b>mm" not in texts(page)
        shown = texts(page).replace("\\", "")
        assert "no device was recorded" in shown and "Wait less." in shown
        assert "Rank 1: the script has a profiler of its own open." in shown
        assert f"/perfetto/{run_id}/?profile={'a' * 10}&rank=0" in shown
        recorded(pages, fence, "b" * 10, 2.0)
        page = pages.open("run", id=run_id, tab="ranks")
        page.selectbox(key="profile_compared").select_index(0).run()
        assert not page.exception
        assert "a step took 200 ms instead of 100 ms (+100%)" in texts(page).replace("\\", "")
