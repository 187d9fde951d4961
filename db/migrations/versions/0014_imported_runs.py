"""Imported runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_id = sa.ForeignKey("runs.id", ondelete="CASCADE")
    op.create_table(
        "imported_runs",
        sa.Column("run_id", sa.String(10), run_id, primary_key=True),
        sa.Column("format", sa.String(32), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("points", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text),
        sa.Column("ended_at", sa.Float(53)),
        sa.Column("completed_at", sa.Float(53)),
    )
    op.create_index("ix_imported_runs_digest", "imported_runs", ["digest"])


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
