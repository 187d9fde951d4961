"""Scaling studies and their runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "scaling_studies",
        sa.Column("id", sa.String(10), primary_key=True),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("mode", sa.String(8), nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("stop_requested_at", sa.Float(53), nullable=True),
        sa.Column("points", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("ended_at", sa.Float(53), nullable=True),
    )
    for column in ("created_at", "ended_at"):
        op.create_index(f"ix_scaling_studies_{column}", "scaling_studies", [column])
    op.create_table(
        "scaling_runs",
        sa.Column("run_id", sa.String(10), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column(
            "study_id",
            sa.String(10),
            sa.ForeignKey("scaling_studies.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("point", sa.Integer, nullable=False),
    )
    op.create_index("ix_scaling_runs_study_id", "scaling_runs", ["study_id"])


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
