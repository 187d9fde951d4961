"""The tensors of checkpoints, asked of a node: shown, compared, kept, and hidden with either checkpoint."""

from __future__ import annotations

from typing import Any

from domain.checkpoint_use.tasks import TaskKind
from tests.dashboard.api.workers.checkpoint_work import desired, report, saved, second
from tests.dashboard.running import Running

__all__ = ["saved"]


def ask(dashboard: Running, checkpoint_id: int, kind: str, **body: Any) -> dict[str, Any]:
    answer = dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/{kind}", json=body or None)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def test_a_node_is_asked_once_for_the_tensors_and_its_report_is_kept(dashboard, node, saved) -> None:
    run_id, checkpoint_id = saved
    asked = ask(dashboard, checkpoint_id, "show")
    (task,) = desired(node)
    assert (task.task_id, task.kind, len(task.sources)) == (asked["id"], TaskKind.SHOW, 1)
    report(node, task, "succeeded", result={"tensors": [{"name": "<b>"}]})
    again = ask(dashboard, checkpoint_id, "show")
    assert again["id"] == asked["id"] and again["result"] == {"tensors": [{"name": "<b>"}]}
    assert desired(node) == []
    assert dashboard.http.get(f"/api/runs/{run_id}/checkpoint-tasks?kind=show").json()[0]["result"] is None


def test_two_checkpoints_are_compared_in_the_order_in_which_they_are_named(dashboard, node, saved) -> None:
    checkpoint_id, other_id = saved[1], second(dashboard, node)
    asked = ask(dashboard, checkpoint_id, "diff", other=other_id)
    (task,) = desired(node)
    assert [source.checkpoint_id for source in task.sources] == [checkpoint_id, other_id]
    assert ask(dashboard, other_id, "diff", other=checkpoint_id)["id"] != asked["id"]
    assert dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/diff", json={"other": 999}).status_code == 404
    assert dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/diff", json={"other": -1}).status_code == 422
    assert dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/diff", json={"other": 10**30}).status_code == 422
