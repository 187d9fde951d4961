"""The tags, projects, nodes, targets, importers and series that can stand in a search."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from db.engine import Store
from db.models import ImportedRun, Node, Run, RunTag, Series

MOST = 12
_COLUMNS: dict[str, ColumnElement[Any]] = {
    "tag": RunTag.tag.expression,
    "project": Run.project.expression,
    "node": Node.name.expression,
    "target": Run.spec["target"].as_string(),
    "imported": ImportedRun.format.expression,
    "series": case((Series.source == "events", Series.tag), else_=Series.source + "/" + Series.tag),
}


def words(store: Store, field: str, part: str) -> list[str]:
    """Stored values of a field that hold this part, in order; case is ignored."""
    column = _COLUMNS[field]
    query = select(column).distinct().where(func.lower(column).contains(part.lower(), autoescape=True))
    if field == "series":
        query = query.where(Series.node_rank == 0)
    with store.read() as session:
        return list(session.scalars(query.order_by(column).limit(MOST)))
