"""The browser and system with which somebody signed in, so that people know their sessions by it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; sessions that began before have no browser."""
    op.add_column("login_sessions", sa.Column("browser", sa.String(length=60), nullable=True))
