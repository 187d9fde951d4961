"""Saved views survive as they were saved, and the list is sorted by single numbers of series."""

from __future__ import annotations

import pytest

from db.engine import Store
from db.runs.run_list import RunList, RunSelection, listed
from db.search import saved_views
from domain.search.fields import parse_column, parse_sort
from domain.search.parser import NamedView
from tests.db.cluster import Cluster
from tests.db.runs.test_baselines import trained

pytestmark = pytest.mark.both_stores


def test_a_view_is_saved_replaced_and_deleted(store: Store) -> None:
    view = NamedView(
        name="b", filter="lr>1", states=["failed"], project="p", columns=["lr", "best:val/loss"], sort="-lr"
    )
    saved_views.save(store, view, 1.0)
    saved_views.save(store, NamedView(name="A"), 2.0)
    assert saved_views.saved(store) == [NamedView(name="A"), view]
    newer = NamedView(name="b", sort="lr")
    saved_views.save(store, newer, 3.0)
    saved_views.forget(store, "A")
    saved_views.forget(store, "nobody")
    assert saved_views.saved(store) == [newer]


def test_runs_are_sorted_by_the_extremes_of_a_series(store: Store, cluster: Cluster) -> None:
    nan = float("nan")
    a = trained(cluster, "a", **{"val/loss": [3.0, nan, 1.0, 2.0]})
    b = trained(cluster, "b", **{"val/loss": [0.5, 9.0]})
    c = trained(cluster, "c", other=[nan])
    for sort, order in (
        ("best:val/loss", [b, a, c]), ("-min:val/loss", [a, b, c]),
        ("max:val/loss", [a, b, c]), ("val/loss", [a, b, c]),
    ):  # fmt: skip
        assert [run.id for run in listed(store, 300.0, RunSelection(), parse_sort(sort), 10)] == order
    names = ("best:val/loss", "min:val/loss", "max:val/loss", "val/loss", "lr", "max:other", "archived")
    with store.read() as session:
        values = RunList(session, RunSelection(), 300.0).values([a, c], [parse_column(name) for name in names])
    assert values[a][:6] == [1.0, 1.0, 3.0, 2.0, 0.1, None] and not values[a][6]
    assert values[c][:4] == [None] * 4 and values[c][4] == pytest.approx(0.1)


def test_extremes_go_on_over_batches(store: Store, cluster: Cluster) -> None:
    run_id = cluster.launch()
    cluster.place()
    fence = cluster.assignments()[-1].fence
    for number, value in enumerate((2.0, float("inf"), 5.0, 1.0)):
        cluster.points(fence, number * 10, number * 10 + 10, {"acc": [(number, value, 1.0)]})
    with store.read() as session:
        values = RunList(session, RunSelection(), 300.0).values(
            [run_id], [parse_column("best:acc"), parse_column("min:acc")]
        )
    assert values == {run_id: [5.0, 1.0]}
