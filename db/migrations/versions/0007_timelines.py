"""The phases of a task's start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("parts", sa.Column("timeline", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
