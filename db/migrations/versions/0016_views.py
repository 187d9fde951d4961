"""Saved views of the list of runs, and the extremes of series that SQL can compare."""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
SERIES_AT_ONCE = 500
CHUNKS_AT_ONCE = 1000


def upgrade() -> None:
    op.create_table(
        "saved_views",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("definition", sa.JSON, nullable=False),
        sa.Column("saved_at", sa.Float(53), nullable=False),
    )
    op.add_column("series", sa.Column("lowest", sa.Float(53), nullable=True))
    op.add_column("series", sa.Column("highest", sa.Float(53), nullable=True))
    _fill_extremes(op.get_bind())


def _fill_extremes(connection: sa.Connection) -> None:
    """Read every point once: a chunk is its steps, its values and its wall times, 8 bytes each."""
    series = sa.table("series", sa.column("id"), sa.column("lowest"), sa.column("highest"))
    chunks = sa.table("chunks", sa.column("series_id"), sa.column("level"), sa.column("points"))
    fill = sa.update(series).where(series.c.id == sa.bindparam("of_series"))
    fill = fill.values(lowest=sa.bindparam("low"), highest=sa.bindparam("high"))
    page, last_id = sa.select(series.c.id).order_by(series.c.id).limit(SERIES_AT_ONCE), -1
    while ids := connection.scalars(page.where(series.c.id > last_id)).all():
        read = sa.select(chunks.c.series_id, chunks.c.points).where(chunks.c.level == 0)
        read = read.where(chunks.c.series_id.in_(ids)).execution_options(yield_per=CHUNKS_AT_ONCE)
        extremes: dict[int, list[float]] = {}
        for series_id, blob in connection.execute(read):
            values = np.frombuffer(blob, "<f8").reshape(3, -1)[1]
            finite = values[np.isfinite(values)]
            if finite.size:
                extremes.setdefault(series_id, []).extend((float(finite.min()), float(finite.max())))
        filled = [{"of_series": of, "low": min(of_it), "high": max(of_it)} for of, of_it in extremes.items()]
        if filled:
            connection.execute(fill, filled)
        last_id = ids[-1]


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
