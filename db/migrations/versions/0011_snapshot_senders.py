"""Who has sent a snapshot: knowing its digest is no longer enough to launch it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "snapshot_senders",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["sha256"], ["snapshots.sha256"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sha256", "by"),
    )
