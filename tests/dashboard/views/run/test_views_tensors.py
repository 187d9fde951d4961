"""The Checkpoints tab's tensors: asked of a node, followed, cancelled, and drawn once they are known."""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest

from domain.checkpoint_use.tasks import CheckpointTaskView, TaskKind
from domain.people.rights import Rights
from domain.people.roles import Role
from tests.dashboard.pages import Pages, button, texts, visited_by
from tests.dashboard.views.run.checkpoint_pages import RUN, pages, report, store

__all__ = ["pages"]


def opened(pages: Pages) -> AppTest:
    """The tab with the section open."""
    run_id = pages.seed.runs[RUN]
    page = pages.open("run", id=run_id, tab="checkpoints")
    page.session_state[f"tensors_{run_id}"] = True
    return page.run()


def tasks(pages: Pages, kind: TaskKind) -> list[CheckpointTaskView]:
    return pages.service.checkpoint_tasks.of_run(pages.seed.runs[RUN], kind)


def drawn(page: AppTest) -> list[int]:
    """The tasks whose results are drawn."""
    data = [json.loads(part.proto.json) for part in page.get("bidi_component") if part.proto.json]
    return [one["task_id"] for one in data if "task_id" in one]


def labels(page: AppTest) -> list[str]:
    return [one.label for one in page.button]


def test_the_tensors_are_asked_for_followed_and_drawn_at_once_ever_after(pages: Pages) -> None:
    store(pages, "work/step_1.pt", b"weights")
    page = opened(pages)
    button(page, "Show the tensors").click().run()
    (task,) = tasks(pages, TaskKind.SHOW)
    report(pages, task, "running", doing="reading w", done_bytes=1, total_bytes=4)
    page.run()
    (bar,) = page.get("progress")
    assert bar.proto.text.replace("\\", "") == "node gpu-1 reading w: 1 of 4 B"
    assert "Show the tensors" not in labels(page)
    report(pages, task, "succeeded", result={"tensors": []})
    assert drawn(page.run()) == [task.id] and not page.get("progress")
    again = opened(pages)
    assert drawn(again) == [task.id] and "Show the tensors" not in labels(again)


def test_a_comparison_is_of_the_change_from_the_earlier_one_to_the_chosen(pages: Pages) -> None:
    store(pages, "work/step_1.pt", b"weights")
    store(pages, "work/step_2.pt", b"other weights")
    page = opened(pages)
    assert page.selectbox(key="tensors_of").value.id == 2
    page.selectbox(key="tensors_before_2").select_index(0).run()
    button(page, "Compare the tensors").click().run()
    (task,) = tasks(pages, TaskKind.DIFF)
    assert (task.checkpoint_id, task.other_id) == (1, 2) and tasks(pages, TaskKind.SHOW) == []
    button(page, "Cancel").click().run()
    assert tasks(pages, TaskKind.DIFF)[0].state == "cancelled"
    assert "Cancelled." in texts(page) and "Compare the tensors" in labels(page)


def test_why_a_node_could_not_read_it_is_said_as_text_and_it_can_be_tried_again(pages: Pages) -> None:
    store(pages, "work/list.pt", b"[1, 2]")
    button(opened(pages), "Show the tensors").click().run()
    report(pages, tasks(pages, TaskKind.SHOW)[0], "failed", message="It holds no *tensors*.")
    page = opened(pages)
    assert page.error[0].value.replace("\\", "") == "It holds no *tensors*."
    button(page, "Show the tensors").click().run()
    assert [task.state for task in tasks(pages, TaskKind.SHOW)] == ["waiting", "failed"]


def test_the_closed_section_reads_nothing(pages: Pages) -> None:
    store(pages, "work/step_1.pt", b"weights")
    task = pages.service.checkpoint_tasks.ask(TaskKind.SHOW, 1)
    report(pages, task, "succeeded", result={"tensors": []})
    page = pages.open("run", id=pages.seed.runs[RUN], tab="checkpoints")
    assert drawn(page) == [] and "Show the tensors" not in labels(page)


def test_a_viewer_sees_what_is_known_and_asks_no_node(pages: Pages) -> None:
    store(pages, "work/step_1.pt", b"weights")
    with visited_by(pages, Rights("vic", everywhere=Role.VIEWER)):
        assert button(opened(pages), "Show the tensors").disabled
    task = pages.service.checkpoint_tasks.ask(TaskKind.SHOW, 1)
    report(pages, task, "succeeded", result={"tensors": []})
    with visited_by(pages, Rights("vic", everywhere=Role.VIEWER)):
        assert drawn(opened(pages)) == [task.id]
