"""The memory of devices and nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of incidents, quarantines and tests."""
    op.create_table(
        "incidents",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("began_at", sa.Float(precision=53), nullable=True),
        sa.Column("is_strike", sa.Boolean(), nullable=False),
        sa.Column("avoid", sa.Boolean(), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("machine", "key"),
    )
    op.create_index("ix_incidents_run_id", "incidents", ["run_id"], unique=False)
    op.create_table(
        "quarantines",
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(precision=53), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("machine", "device"),
    )
    op.create_table(
        "hardware_tests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(length=10), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.Column("asked_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("results", sa.JSON(), nullable=True),
        sa.Column("reduce_bytes_per_s", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_hardware_tests_node_id", "hardware_tests", ["node_id"], unique=False)
