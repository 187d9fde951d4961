"""Rows of MLflow's SQLite files."""

from __future__ import annotations

import math
import sqlite3
from typing import Literal

from domain.messages import Point

TABLES = frozenset({"runs", "metrics", "params", "tags", "experiments"})


def point(row: sqlite3.Row) -> Point:
    """Return the point of a row of `metrics`."""
    value = math.nan if row["is_nan"] else float(row["value"])
    return int(row["step"]), value, row["timestamp"] / 1000


def texts(connection: sqlite3.Connection, table: Literal["params", "tags"], run_id: str) -> dict[str, str]:
    """Return the parameters or tags of a run by their names."""
    query = f"SELECT key, value FROM {table} WHERE run_uuid = ?"
    return {row["key"]: row["value"] for row in connection.execute(query, (run_id,))}
