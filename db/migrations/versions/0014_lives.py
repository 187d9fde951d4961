"""Lives of a script: a series that a later one goes on with, the file its points came from, steps that repeat."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; of what was stored before, all points are shown."""
    # SQLite takes a reference only with its column, which Alembic would add in a statement of its own.
    op.execute("ALTER TABLE series ADD COLUMN past_fence INTEGER REFERENCES attempts (fence) ON DELETE CASCADE")
    op.add_column("series", sa.Column("file_id", sa.BigInteger(), nullable=True))
    op.add_column("series", sa.Column("repeats", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_series_past_fence", "series", ["past_fence"])
