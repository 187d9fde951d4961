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
    op.add_column("checkpoints", sa.Column("upload_began_at", sa.Float(53), nullable=True))
    op.create_table(
        "discarded",
        sa.Column("location", sa.Text(), primary_key=True),
        sa.Column("discarded_at", sa.Float(precision=53), nullable=False),
    )
    _preflight()
    _lost_nodes()
    _slurm()
    _resizing()


def _preflight() -> None:
    op.add_column("attempts", sa.Column("preflighted_at", sa.Float(precision=53), nullable=True))
    op.execute("update attempts set preflighted_at = started_at")
    op.add_column("parts", sa.Column("preflight", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "checks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("python", sa.Text(), nullable=True),
        sa.Column("bandwidth", sa.Boolean(), nullable=False),
        sa.Column("asked_at", sa.Float(precision=53), nullable=False),
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("stage_at", sa.Float(precision=53), nullable=False),
        sa.Column("rounds", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("measured", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fence"),
    )
    op.create_index(op.f("ix_checks_ended_at"), "checks", ["ended_at"])
    op.create_table(
        "check_parts",
        sa.Column("check_id", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(10), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("devices", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("facts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("answered_stage", sa.Integer(), nullable=False),
        sa.Column("silent_s", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["checks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("check_id", "node_rank"),
    )
    op.create_index(op.f("ix_check_parts_node_id"), "check_parts", ["node_id"])
    op.create_table(
        "pair_passes",
        sa.Column("node_a", sa.String(10), nullable=False),
        sa.Column("node_b", sa.String(10), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("bytes_per_s", sa.Float(precision=53), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("node_a", "node_b"),
    )


def _lost_nodes() -> None:
    op.add_column("attempts", sa.Column("end_requested_at", sa.Float(precision=53), nullable=True))
    op.add_column("attempts", sa.Column("end_reason", sa.String(length=32), nullable=True))
    op.add_column("attempts", sa.Column("end_message", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("not_before", sa.Float(precision=53), nullable=True))
    op.add_column("attempts", sa.Column("restarts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("parts", sa.Column("lost_at", sa.Float(precision=53), nullable=True))


def _slurm() -> None:
    op.add_column("nodes", sa.Column("pool", sa.String(32), nullable=False, server_default=""))
    op.create_table(
        "jobs",
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("gateway_id", sa.String(10), nullable=False),
        sa.Column("said", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ended_at", sa.Float(53), nullable=True),
        sa.PrimaryKeyConstraint("fence"),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["gateway_id"], ["nodes.id"]),
    )
    op.create_index("ix_jobs_gateway_id", "jobs", ["gateway_id"])


def _resizing() -> None:
    op.add_column("attempts", sa.Column("resize_requested_at", sa.Float(precision=53), nullable=True))
    op.add_column("attempts", sa.Column("resize_message", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("turn_since", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
