"""A project's baseline, best run and activity, on both stores."""

from __future__ import annotations

import pytest

from db.engine import Store
from db.exceptions import NoSuchProject
from db.models import Attempt, Node, Run, Series, Task
from db.runs.projects import FIRST_MONDAY, WEEK_S, WEEKS, ChosenRun, project
from domain.messages import State
from domain.spec import RunSpec

pytestmark = pytest.mark.both_stores

NOW = FIRST_MONDAY + 100 * WEEK_S + 3 * 3600
"""A Monday, three hours after midnight."""


def add(store: Store, run_id: str, age_s: float, state: State = State.SUCCEEDED, **run) -> None:
    """Add a run on two devices, with the lowest and highest values of its series; it ended an hour after its start."""
    series, hours = run.pop("series", {}), run.pop("hours", 1.0)
    spec = RunSpec(target="t").model_dump(mode="json")
    began_at = NOW - age_s
    with store.write() as session:
        if session.get(Node, "n") is None:
            session.add(
                Node(id="n", name="n", instance_id="n", token_hash="n", hostname="n", address="", devices=[], labels={},
                     info={}, first_seen=1.0, last_seen=1.0)
            )  # fmt: skip
        session.add(
            Run(
                **{
                    "id": run_id,
                    "name": f"name of {run_id}",
                    "project": "vision",
                    "spec": spec,
                    "created_at": began_at,
                }
                | run
            )
        )
        session.flush()
        attempt = Attempt(
            run_id=run_id, number=1, created_at=began_at, state=state, started_at=began_at, placed_at=began_at,
            ended_at=began_at + hours * 3600 if state.is_terminal else None,
        )  # fmt: skip
        session.add(attempt)
        session.flush()
        session.add(
            Task(
                fence=attempt.fence,
                node_rank=0,
                node_id="n",
                device_kind="cuda",
                devices=["0", "1"],
                state=state,
            )
        )
        for tag, (low, high) in series.items():
            session.add(
                Series(fence=attempt.fence, node_rank=0, source="events", tag=tag, count=2, first_step=1, last_step=2,
                       first_wall=1.0, last_wall=2.0, last_value=high, last_number=high, lowest=low, highest=high,
                       finite_sum=0.0, finite_count=2)
            )  # fmt: skip


def test_the_best_run_is_judged_by_the_metric_of_the_baseline(store: Store) -> None:
    both = {"val/acc": (0.1, 0.8), "train/loss": (0.5, 2.0)}
    add(store, "baseline00", 3600, baseline_at=1.0, series={"val/acc": (0.1, 0.5)})
    add(store, "better0000", 7200, series=both)
    add(store, "lossonly00", 7200, series={"train/loss": (0.1, 1.0), "val/loss": (0.1, 1.0)})
    add(store, "archived00", 7200, archived_at=1.0, series={"val/acc": (0.1, 0.9)})
    add(store, "elsewhere0", 7200, project="text", series={"val/acc": (0.1, 0.99)})
    view = project(store, "vision", NOW)
    assert (view.metric, view.goal) == ("val/acc", "max")
    assert view.baseline == ChosenRun("baseline00", "name of baseline00", 0.5)
    assert view.best == ChosenRun("better0000", "name of better0000", 0.8)
    assert view.better_percent == pytest.approx(60)
    assert view.runs == {State.SUCCEEDED: 3}


def test_without_a_baseline_it_is_judged_by_what_most_runs_log(store: Store) -> None:
    for number in range(4):
        add(store, f"run000000{number}", 7200, series={"train/loss": (0.5 - number / 10, 2.0), "lr": (0, 1)})
    add(store, "other00000", 3600, series={"val/loss": (0.01, 2.0), "train/loss": (0.4, 1.0)})
    view = project(store, "vision", NOW)
    assert (view.metric, view.goal, view.baseline, view.better_percent) == ("train/loss", "min", None, None)
    assert view.best is not None and view.best.id == "run0000003"
    for number in range(3):
        add(store, f"more00000{number}", 60, series={"val/loss": (0.2, 2.0), "train/loss": (0.4, 1.0)})
    later = project(store, "vision", NOW)
    assert later.metric == "val/loss" and later.best is not None and later.best.id == "other00000"


def test_runs_without_results_and_unknown_projects(store: Store) -> None:
    add(store, "waits00000", 60, State.QUEUED)
    view = project(store, "vision", NOW)
    assert (view.metric, view.best, view.runs) == (None, None, {State.QUEUED: 1})
    with pytest.raises(NoSuchProject, match="'nothing'"):
        project(store, "nothing", NOW)


def test_activity_is_counted_by_week_and_a_training_over_midnight_belongs_to_both(store: Store) -> None:
    add(store, "monday0000", 4 * 3600, State.FAILED, hours=2)
    add(store, "running000", 3600, State.RUNNING)
    add(store, "longago000", 200 * 24 * 3600)
    add(store, "oldest0000", (WEEKS - 1) * WEEK_S, hours=3)
    weeks = project(store, "vision", NOW).weeks
    assert [week.began_at for week in weeks] == [NOW - 3 * 3600 - at * WEEK_S for at in reversed(range(WEEKS))]
    assert (weeks[-1].runs, weeks[-2].runs, weeks[0].runs) == (
        {State.RUNNING: 1}, {State.FAILED: 1}, {State.SUCCEEDED: 1}
    )  # fmt: skip
    hours = [round(week.device_hours, 6) for week in weeks]
    assert (hours[0], hours[-2], hours[-1]) == (6, 2, 2 + 2) and sum(hours[1:-2]) == 0
