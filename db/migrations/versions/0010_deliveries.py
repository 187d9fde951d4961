"""What nodes have still to send of ended attempts, and the attempts that wait for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; attempts that have ended by now have sent everything."""
    op.add_column("tasks", sa.Column("delivery", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("attempts", sa.Column("delivery_end_requested_at", sa.Float(precision=53), nullable=True))
    op.add_column("attempts", sa.Column("awaits_checkpoints_of", sa.Integer(), nullable=True))
