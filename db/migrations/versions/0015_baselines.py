"""The baseline of a project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("baseline_at", sa.Float(53), nullable=True))
    is_baseline = sa.text("baseline_at IS NOT NULL")
    op.create_index(
        "baseline_of_project",
        "runs",
        ["project"],
        unique=True,
        sqlite_where=is_baseline,
        postgresql_where=is_baseline,
    )


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
