"""Work on checkpoints, retention rules, and what is known of a checkpoint besides its bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add the columns and tables; nothing is pinned, deleted or compressed yet."""
    for name, type_ in (
        ("holds", JSON),
        ("merged_from", sa.Integer()),
        ("pinned_at", sa.Float(53)),
        ("pinned_by", sa.String(length=40)),
        ("deleted_at", sa.Float(53)),
        ("deleted_by", sa.String(length=40)),
        ("deleted_why", sa.Text()),
    ):
        op.add_column("checkpoints", sa.Column(name, type_, nullable=True))
    op.create_index("ix_checkpoints_deleted_at", "checkpoints", ["deleted_at"])
    op.add_column("files", sa.Column("compressed_bytes", sa.BigInteger(), nullable=True))
    _add_tasks()
    _add_rules()


def _add_tasks() -> None:
    op.create_table(
        "checkpoint_tasks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("checkpoint_id", sa.Integer(), nullable=False),
        sa.Column("other_id", sa.Integer(), nullable=True),
        sa.Column("options", JSON, nullable=False),
        sa.Column("node_id", sa.String(length=10), nullable=False),
        sa.Column("by", sa.String(length=40), nullable=True),
        sa.Column("via", sa.Text(), nullable=True),
        sa.Column("asked_at", sa.Float(53), nullable=False),
        sa.Column("cancel_requested_at", sa.Float(53), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("doing", sa.Text(), nullable=True),
        sa.Column("done_bytes", sa.BigInteger(), nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("result", JSON, nullable=True),
        sa.Column("merged_id", sa.Integer(), nullable=True),
        sa.Column("ended_at", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_checkpoint_tasks_checkpoint_id", "checkpoint_tasks", ["checkpoint_id"])
    op.create_index("ix_checkpoint_tasks_node_id", "checkpoint_tasks", ["node_id"])


def _add_rules() -> None:
    op.create_table(
        "retention_rules",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("run_id", sa.String(length=10), nullable=True),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("set_by", sa.String(length=40), nullable=True),
        sa.Column("set_at", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project"),
        sa.UniqueConstraint("run_id"),
    )
