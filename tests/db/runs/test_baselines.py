"""A project has one baseline at most, and the results of its other runs stand beside that one's."""

from __future__ import annotations

import pytest

from db.engine import Store
from db.runs import run_queries
from db.runs.run_queries import common_baseline
from db.runs.run_requests import edit
from domain.series.goals import BaselineChange
from domain.spec import RunEdit
from domain.views import RunView
from tests.db.cluster import Cluster


def trained(cluster: Cluster, name: str, **series: list[float]) -> str:
    """A run of one attempt that logged these values, at steps 1, 2, …"""
    run_id = cluster.launch(name=name)
    cluster.place()
    fence = cluster.assignments()[-1].fence
    curves = {
        tag: [(step, value, 100.0 + step) for step, value in enumerate(values, 1)] for tag, values in series.items()
    }
    cluster.points(fence, 0, 10, curves)
    cluster.report(fence, "succeeded")
    return run_id


def read(store: Store, run_id: str) -> RunView:
    view = run_queries.run(store, run_id, 200.0)
    assert view is not None
    return view


def test_a_run_stands_beside_the_baseline_of_its_project(store: Store, cluster: Cluster) -> None:
    base = trained(cluster, "base", **{"val/loss": [3.0, 2.0, 4.0], "train/loss": [1.0]})
    run = trained(cluster, "run", **{"val/loss": [1.5, float("nan")], "train/loss": [1.0]})
    other = trained(cluster, "other", speed=[3.0])
    assert read(store, run).against_baseline is None
    edit(store, base, RunEdit(baseline=True), 5.0)
    assert read(store, run).against_baseline == BaselineChange(base, "base", "val/loss", 1.5, 2.0, 25.0)
    assert read(store, other).against_baseline == BaselineChange(base, "base", None, None, None, None)
    assert read(store, base).baseline and read(store, base).against_baseline is None
    assert common_baseline(store, [run, other]) == base


def test_a_project_has_one_baseline(store: Store, cluster: Cluster) -> None:
    first, second = cluster.launch(project="p"), cluster.launch(project="p")
    elsewhere = cluster.launch(project="q")
    for run_id in (first, elsewhere, second):
        edit(store, run_id, RunEdit(baseline=True), 5.0)
    assert [read(store, run_id).baseline for run_id in (first, second, elsewhere)] == [False, True, True]
    assert common_baseline(store, [first]) == second and common_baseline(store, [first, elsewhere]) is None
    edit(store, elsewhere, RunEdit(project="p"), 6.0)
    assert [read(store, run_id).baseline for run_id in (second, elsewhere)] == [True, False]
    edit(store, second, RunEdit(project="q", baseline=True), 7.0)
    assert read(store, second).baseline and common_baseline(store, [first]) is None
    edit(store, second, RunEdit(baseline=False), 8.0)
    assert not read(store, second).baseline
    texts = [line.text for line in run_queries.history(store, second)]
    assert texts[-2:] == ["the baseline of project q", "no longer the baseline of project q"]


@pytest.mark.parametrize("change", [RunEdit(name="n"), RunEdit(pinned=True)])
def test_other_changes_leave_the_baseline(store: Store, cluster: Cluster, change: RunEdit) -> None:
    run_id = cluster.launch()
    edit(store, run_id, RunEdit(baseline=True), 5.0)
    edit(store, run_id, change, 6.0)
    assert read(store, run_id).baseline
