"""Series that belong to no attempt yet: those of a run that is being imported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _allow_null_in_sqlite()
    else:
        op.alter_column("series", "fence", existing_type=sa.Integer, nullable=True)


def _allow_null_in_sqlite() -> None:
    """Take NOT NULL out of the table's text, as SQLite's documentation of ALTER TABLE says.

    Making the table anew would drop the old one, and with it, by the foreign key's cascade, every point."""
    store = op.get_bind()
    version = store.execute(sa.text("PRAGMA schema_version")).scalar_one()
    store.execute(sa.text("PRAGMA writable_schema = ON"))
    store.execute(
        sa.text(
            "UPDATE sqlite_master SET sql = replace(sql, 'fence INTEGER NOT NULL', 'fence INTEGER') "
            "WHERE type = 'table' AND name = 'series'"
        )
    )
    store.execute(sa.text(f"PRAGMA schema_version = {version + 1}"))
    store.execute(sa.text("PRAGMA writable_schema = OFF"))


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
