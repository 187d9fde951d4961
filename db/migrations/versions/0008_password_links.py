"""Whose new password an invitation's link sets, where it is for an account that is there already."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; all invitations of before make new accounts."""
    op.add_column("invitations", sa.Column("user", sa.String(length=40), nullable=True))
