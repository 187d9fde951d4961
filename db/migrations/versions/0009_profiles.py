"""Profiles of ranks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "profiled_ranks",
        sa.Column("profile_id", sa.String(10), primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("fence", sa.Integer, sa.ForeignKey("attempts.fence", ondelete="CASCADE"), nullable=False),
        sa.Column("node_rank", sa.Integer, nullable=False),
        sa.Column("requested_at", sa.Float(53), nullable=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("until", sa.Float(53), nullable=False),
        sa.Column("state", sa.String(16)),
        sa.Column("why", sa.Text),
        sa.Column("file", sa.Text),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("step_s_before", sa.Float(53)),
        sa.Column("overview", sa.JSON(none_as_null=True)),
        sa.Column("flame", sa.JSON(none_as_null=True)),
    )
    op.create_index("ix_profiled_ranks_fence", "profiled_ranks", ["fence"])


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
