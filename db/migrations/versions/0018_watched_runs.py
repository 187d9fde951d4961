"""Runs that others started, budgets of tokens, and launches that happen once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add the columns and tables; no token has a budget yet."""
    for table, name, type_ in (
        ("access_tokens", "budget_s", sa.Float(53)),
        ("access_tokens", "most_devices", sa.Integer()),
        ("access_tokens", "longest_s", sa.Float(53)),
        ("runs", "token_id", sa.String(length=8)),
        ("runs", "longest_s", sa.Float(53)),
        ("studies", "token_id", sa.String(length=8)),
    ):
        op.add_column(table, sa.Column(name, type_, nullable=True))
    op.create_index("ix_runs_token_id", "runs", ["token_id"])
    _add_watched()
    _add_charges()


def _add_watched() -> None:
    op.create_table(
        "watched_runs",
        sa.Column("run_id", sa.String(length=10), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("is_lasting", sa.Boolean(), nullable=False),
        sa.Column("command", JSON, nullable=False),
        sa.Column("cwd", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("scheduler", sa.Text(), nullable=True),
        sa.Column("look_only", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index("ix_watched_runs_key", "watched_runs", ["key"])
    op.create_table(
        "watched_tasks",
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("watch_id", sa.String(length=10), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("began_at", sa.Float(53), nullable=False),
        sa.Column("ranks", sa.Integer(), nullable=True),
        sa.Column("world_size", sa.Integer(), nullable=True),
        sa.Column("seen_at", sa.Float(53), nullable=True),
        sa.Column("ended_at", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("fence", "node_rank"),
        sa.UniqueConstraint("watch_id"),
    )


def _add_charges() -> None:
    op.create_table(
        "charges",
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.String(length=8), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("asked_at", sa.Float(53), nullable=False),
        sa.Column("placed_at", sa.Float(53), nullable=True),
        sa.Column("ended_at", sa.Float(53), nullable=True),
        sa.Column("least_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("fence"),
    )
    op.create_index("ix_charges_token_id", "charges", ["token_id"])
    op.create_table(
        "launch_keys",
        sa.Column("by", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("by", "key"),
    )
