"""Indexes for the list of runs: it counts, orders and pages without their rows, and looks pinned ones up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("listed_runs", "runs", ["created_at", "id", "archived_at"])
    op.drop_index("ix_runs_created_at", "runs")
    is_pinned = sa.text("pinned_at IS NOT NULL")
    op.create_index("pinned_runs", "runs", ["id"], sqlite_where=is_pinned, postgresql_where=is_pinned)


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
