"""The Checkpoints tab: pins, the rule and what it would free, the bin, and the disk; a project's rule on its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from db.attempts import attempt_queries
from db.checkpoints import checkpoint_queries, checkpoint_reports, retention_rules
from domain.messages import CheckpointOffer
from tests.dashboard.pages import Pages, button, served, texts

RUN = "kept"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    """A run with three checkpoints."""
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch(RUN, 100, gpus_per_node=1)
        pages.seed.start(RUN, 90)
        (attempt,) = attempt_queries.attempts(pages.service.store, pages.seed.runs[RUN])
        for step in (10, 20, 30):
            store(pages, attempt.fence, step)
        yield pages


def store(pages: Pages, fence: int, step: int) -> None:
    offer = CheckpointOffer(
        path=f"work/step_{step}.pt", step=step, size_bytes=1024, sha256=f"{step:064}", written_at=60.0 * step
    )
    row = checkpoint_reports.offered(pages.service.store, pages.seed.node_ids["gpu-1"], fence, 0, offer, 2.0)
    checkpoint_reports.completed(pages.service.store, row.id, 2.0)


def opened(pages: Pages) -> AppTest:
    return pages.open("run", id=pages.seed.runs[RUN], tab="checkpoints")


def steps(pages: Pages) -> list[int | None]:
    return sorted(view.step or 0 for view in checkpoint_queries.checkpoints(pages.service.store, pages.seed.runs[RUN]))


def test_a_checkpoint_is_pinned_and_unpinned(pages: Pages) -> None:
    page = opened(pages)
    button(page, "Pin").click().run()
    assert "orange-badge[pinned]" in texts(page)
    assert next(one for one in page.button if one.label.startswith("Delete, frees")).disabled
    button(page, "Unpin").click().run()
    assert "orange-badge[pinned]" not in texts(page)


def test_a_deleted_checkpoint_is_restored_from_the_bin(pages: Pages) -> None:
    page = opened(pages)
    button(page, "Delete, frees 1 KiB").click().run()
    assert steps(pages) == [10, 20]
    assert "can be restored until" in texts(page)
    button(page, "Restore").click().run()
    assert steps(pages) == [10, 20, 30]
    assert "can be restored until" not in texts(page)


def test_a_rule_says_what_it_frees_before_it_is_set(pages: Pages) -> None:
    page, run_id = opened(pages), pages.seed.runs[RUN]
    field = page.text_input(key=f"retention_{run_id}")
    field.set_value("the newest").run()
    assert "is no part of a rule" in texts(page)
    page.text_input(key=f"retention_{run_id}").set_value("last 1").run()
    assert "frees 2 KiB: 2 checkpoints of 1 run" in texts(page).replace("\\", "")
    assert retention_rules.of_run(pages.service.store, run_id).of is None
    button(page, "Set the rule").click().run()
    assert retention_rules.of_run(pages.service.store, run_id).rule == "last 1, pinned"
    assert "it goes" in texts(page)
    pages.service.retention.sweep()
    assert steps(pages) == [30]


def test_the_disk_is_forecast(pages: Pages) -> None:
    assert "Disk for checkpoints: " in texts(opened(pages))


def test_a_projects_rule_is_set_on_its_page(pages: Pages) -> None:
    project = pages.service.run(pages.seed.runs[RUN]).project
    page = pages.open("project", name=project)
    page.text_input(key=f"retention_project_{project}").set_value("last 2").run()
    assert "frees 1 KiB: 1 checkpoint of 1 run" in texts(page).replace("\\", "")
    button(page, "Set the rule").click().run()
    assert retention_rules.of_project(pages.service.store, project).rule == "last 2, pinned"
