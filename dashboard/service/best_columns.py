"""The columns that a list of runs has for its search, its order and its project: the best value of each metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboard.service.cost_cache import CostCache
from db.engine import Store
from db.people.visibility import Visibility, visibility
from db.runs import projects, run_list
from domain.search import fields
from domain.search.fields import Sort, parse_column
from domain.search.query import Query
from domain.views import RunView

METRICS = CostCache[tuple[Store, str, Visibility], str | None]()


def best_columns(store: Store, query: Query, project: str | None, sort: Sort | None = None) -> list[str]:
    """The columns, in the language of `parse_column`; `project`: the only one that is listed."""
    if not project:
        return fields.best_columns(query, sort)
    key = store, project, visibility()
    return fields.best_columns(query, sort, METRICS.get(key, lambda: projects.metric(store, project)))


def best_values(store: Store, now: float, runs: Sequence[RunView], columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The value of each column by the run's id."""
    values = run_list.values(store, now, [run.id for run in runs], [parse_column(text) for text in columns])
    return {run_id: dict(zip(columns, of_run, strict=True)) for run_id, of_run in values.items()}
