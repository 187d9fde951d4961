"""Notices: what somebody did to the runs of another person, until that person has read it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; make the index of the list of runs anew."""
    op.create_table(
        "notices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=40), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=True),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user"], ["users.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_notices_user"), "notices", ["user"], unique=False)
    op.drop_index("listed_runs", "runs")
    op.create_index(
        "listed_runs", "runs", ["created_at", "id", "archived_at", "deleted_at", "project", "by"], unique=False
    )
