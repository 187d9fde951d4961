"""Attempts that differ from what was launched, and what many nodes need."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("changes", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("nodes", sa.Column("removed_at", sa.Float(53), nullable=True))
    op.create_table(
        "join_tokens",
        sa.Column("id", sa.String(8), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.Column("revoked_at", sa.Float(53), nullable=True),
        sa.Column("last_used_at", sa.Float(53), nullable=True),
        sa.Column("uses", sa.Integer(), nullable=False),
    )
    for name in ("location", "upload_id", "trouble"):
        op.add_column("checkpoints", sa.Column(name, sa.Text(), nullable=True))
    op.create_table(
        "discarded",
        sa.Column("location", sa.Text(), primary_key=True),
        sa.Column("discarded_at", sa.Float(precision=53), nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
