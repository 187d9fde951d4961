"""Snapshots of code, findings, interpreters, next steps, and prefixes in checkpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "snapshots",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("origin", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "findings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("meaning", sa.Text(), nullable=False),
        sa.Column("mend", sa.Text(), nullable=False),
        sa.Column("first_at", sa.Float(precision=53), nullable=False),
        sa.Column("gone_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fence", "node_rank", "kind"),
    )
    op.add_column("attempts", sa.Column("next_step", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("stacks_requested_at", sa.Float(precision=53), nullable=True))
    op.add_column("parts", sa.Column("stacks", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("parts", sa.Column("next_step", sa.Text(), nullable=True))
    op.add_column("parts", sa.Column("interpreter", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("checkpoints", sa.Column("prefix", sa.Text(), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
