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


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
