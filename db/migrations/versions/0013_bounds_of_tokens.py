"""The one project of the token with which something was begun: what goes on for its person is bound by it, too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; what was begun before has no bound.

    Attempts let go of checkpoints that were erased: their ids are given to others."""
    op.execute(
        "UPDATE attempts SET resume_checkpoint_id = NULL WHERE resume_checkpoint_id NOT IN (SELECT id FROM checkpoints)"
    )
    for table in ("attempts", "sweeps", "scaling_studies"):
        op.add_column(table, sa.Column("only_project", sa.Text(), nullable=True))
