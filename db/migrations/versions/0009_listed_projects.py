"""An index from which a list reads whose runs a person may see, without the runs themselves."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the project to the index."""
    op.drop_index("listed_runs", "runs")
    op.create_index("listed_runs", "runs", ["created_at", "id", "archived_at", "deleted_at", "project"], unique=False)
