"""Read-only links to runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shared_links",
        sa.Column("id", sa.String(10), primary_key=True),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("runs", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.Column("revoked_at", sa.Float(53), nullable=True),
    )


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
