"""What a command line that asks to be let in wants: the scope, how long, and where it asked from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; requests live for minutes, so that those of before may go."""
    op.execute(sa.delete(sa.table("login_requests")))
    op.add_column("login_requests", sa.Column("scope", sa.String(length=8), nullable=False, server_default="read"))
    op.add_column("login_requests", sa.Column("project", sa.Text(), nullable=True))
    op.add_column("login_requests", sa.Column("lasts_s", sa.Float(precision=53), nullable=True))
    op.add_column("login_requests", sa.Column("address", sa.Text(), nullable=True))
