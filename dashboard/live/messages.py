"""New points as messages of the live channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dashboard.json_responses import json_text
from db.metrics.curves import public_name, to_json_points
from db.models import Series
from domain.messages import Point


def series_message(attempt: int, changes: Iterable[tuple[Series, Sequence[Point]]]) -> dict[str, object]:
    """New points of one attempt's series, to be appended to those shown; as an object and as JSON text."""
    series = {
        public_name(row): {
            "source": row.source,
            "attempt": attempt,
            "points": to_json_points(points),
            "reset": False,
        }
        for row, points in changes
    }
    return {"type": "series", "series": series, "text": json_text({"type": "series", "series": series})}
