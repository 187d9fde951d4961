"""Nodes that drain, devices that others use, and expected starts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("drain_requested_at", sa.Float(precision=53), nullable=True))
    op.add_column("nodes", sa.Column("foreign_devices", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("attempts", sa.Column("expected_start_at", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
