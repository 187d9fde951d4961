"""A checkpoint that never arrived is sent again on request."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("resend_requested_at", sa.Float))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
