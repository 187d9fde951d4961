"""The metric of each trial at its rungs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sweep_trials", sa.Column("rung_values", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
