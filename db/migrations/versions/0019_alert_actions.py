"""Alerts that act on runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("act", sa.String(16), nullable=True))
    op.add_column("alerts", sa.Column("lr_factor", sa.Float(53), nullable=True))
    op.add_column("alert_events", sa.Column("act", sa.String(16), nullable=True))
    op.add_column("attempts", sa.Column("rollback", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
