"""The store's identity, ids that tell attempts of two stores apart, and what nodes train that the store lacks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "store_identities",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.String(length=16), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("began_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "deleted_attempts",
        sa.Column("fence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uid", sa.String(length=16), nullable=True),
        sa.PrimaryKeyConstraint("fence"),
    )
    op.add_column("attempts", sa.Column("uid", sa.String(length=16), nullable=True))
    op.add_column("nodes", sa.Column("protocol", sa.Integer(), nullable=True))
    op.add_column("nodes", sa.Column("unknown_attempts", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("nodes", sa.Column("unknown_ends", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
