"""Tags, notes, archived and pinned runs, and last values that SQL can compare."""

from __future__ import annotations

import math
import struct

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
ROWS_AT_ONCE = 10_000


def upgrade() -> None:
    op.add_column("runs", sa.Column("note", sa.Text, nullable=True))
    op.add_column("runs", sa.Column("archived_at", sa.Float(53), nullable=True))
    op.add_column("runs", sa.Column("pinned_at", sa.Float(53), nullable=True))
    op.create_table(
        "run_tags",
        sa.Column("run_id", sa.String(10), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("tag", sa.Text, primary_key=True),
    )
    op.create_index("ix_run_tags_tag", "run_tags", ["tag"])
    op.add_column("series", sa.Column("last_number", sa.Float(53), nullable=True))
    _fill_last_numbers(op.get_bind())


def _fill_last_numbers(connection: sa.Connection) -> None:
    series = sa.table("series", sa.column("id"), sa.column("last_value"), sa.column("last_number"))
    fill = (
        sa.update(series)
        .where(series.c.id == sa.bindparam("of_series"))
        .values(last_number=sa.bindparam("number"))
    )
    page, last_id = sa.select(series.c.id, series.c.last_value).order_by(series.c.id).limit(ROWS_AT_ONCE), 0
    while rows := connection.execute(page.where(series.c.id > last_id)).all():
        values = [(row.id, struct.unpack("<d", row.last_value)[0]) for row in rows]
        filled = [{"of_series": row_id, "number": value} for row_id, value in values if not math.isnan(value)]
        if filled:
            connection.execute(fill, filled)
        last_id = rows[-1].id


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
