"""People, their roles and credentials, secrets, the audit log, and who did what."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SIGNED = ("alerts", "attempts", "checks", "hardware_tests", "history", "join_tokens", "runs", "saved_views",
          "scaling_studies", "shared_links", "sweeps")  # fmt: skip
OWNED = ("alerts", "attempts", "join_tokens", "runs", "saved_views", "scaling_studies", "shared_links", "sweeps")


def upgrade() -> None:
    """Make the tables and columns; all that is there already is the owner's."""
    _add_people()
    _add_credentials()
    _add_audit()
    _sign()
    _add_deletion()
    _give_to_owner()


def _add_people() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("email", sa.Text(), nullable=True),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("identity", sa.Text(), nullable=True),
        sa.Column("role", sa.String(length=8), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("created_by", sa.String(length=40), nullable=True),
        sa.Column("last_seen_at", sa.Float(precision=53), nullable=True),
        sa.Column("sessions_since", sa.Float(precision=53), nullable=False),
        sa.Column("removed_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("name"),
        sa.UniqueConstraint("email"),
        sa.UniqueConstraint("identity"),
    )
    op.create_table(
        "memberships",
        sa.Column("user", sa.String(length=40), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user", "project"),
    )
    op.create_table(
        "private_projects",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(precision=53), nullable=False),
        sa.Column("by", sa.String(length=40), nullable=True),
        sa.PrimaryKeyConstraint("project"),
    )
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=8), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("by", sa.String(length=40), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.Column("accepted_by", sa.String(length=40), nullable=True),
        sa.Column("accepted_at", sa.Float(precision=53), nullable=True),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret_hash"),
    )


def _add_credentials() -> None:
    op.create_table(
        "login_sessions",
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=40), nullable=False),
        sa.Column("way", sa.String(length=16), nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["user"], ["users.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("secret_hash"),
    )
    op.create_index("ix_login_sessions_user", "login_sessions", ["user"], unique=False)
    op.create_table(
        "login_requests",
        sa.Column("code", sa.String(length=16), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.Column("user", sa.String(length=40), nullable=True),
        sa.Column("answered_at", sa.Float(precision=53), nullable=True),
        sa.Column("is_refused", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("code"),
    )
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.String(length=8), nullable=False),
        sa.Column("user", sa.String(length=40), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=True),
        sa.Column("last_used_at", sa.Float(precision=53), nullable=True),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["user"], ["users.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret_hash"),
    )
    op.create_index("ix_access_tokens_user", "access_tokens", ["user"], unique=False)
    op.create_table(
        "secrets",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=40), nullable=True),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("by", sa.String(length=40), nullable=True),
        sa.Column("set_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("secret_of_person", "secrets", ["user", "name"], unique=True)
    op.create_index("secret_of_project", "secrets", ["project", "name"], unique=True)


def _add_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("by", sa.String(length=40), nullable=True),
        sa.Column("via", sa.Text(), nullable=True),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("more", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_audit_at", "audit", ["at"], unique=False)
    op.create_index("ix_audit_by", "audit", ["by"], unique=False)


def _sign() -> None:
    for table in SIGNED:
        op.add_column(table, sa.Column("by", sa.String(length=40), nullable=True))
    for table in ("attempts", "history", "runs"):
        op.add_column(table, sa.Column("via", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("stop_requested_by", sa.String(length=40), nullable=True))
    op.add_column("nodes", sa.Column("drain_requested_by", sa.String(length=40), nullable=True))
    op.create_index("ix_runs_by", "runs", ["by"], unique=False)


def _add_deletion() -> None:
    op.add_column("runs", sa.Column("deleted_at", sa.Float(precision=53), nullable=True))
    op.add_column("runs", sa.Column("deleted_by", sa.String(length=40), nullable=True))
    op.drop_index("listed_runs", "runs")
    op.create_index("listed_runs", "runs", ["created_at", "id", "archived_at", "deleted_at"], unique=False)


def _give_to_owner() -> None:
    users = sa.table("users", *(sa.column(name) for name in ("name", "role", "created_at", "sessions_since")))
    owner = {"name": "owner", "role": "owner", "created_at": time.time(), "sessions_since": 0.0}
    op.execute(sa.insert(users).values(**owner))
    for name in OWNED:
        table = sa.table(name, sa.column("by"))
        op.execute(sa.update(table).values(by="owner"))
