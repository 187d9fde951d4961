"""The secrets that live attempts were given."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "attempt_secrets",
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("fence", "name"),
    )
