"""How often a join token may be used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; older tokens have no bound."""
    op.add_column("join_tokens", sa.Column("most_uses", sa.Integer(), nullable=True))
