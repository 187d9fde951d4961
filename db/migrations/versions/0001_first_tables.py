"""The tables of the first version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables, each after those that it refers to."""
    _add_nodes()
    _add_runs()
    _add_studies()
    _add_attempts()
    _add_history()
    _add_marks_and_trials()
    _add_checkpoints()
    _add_preflights_and_files()
    _add_findings_and_jobs()
    _add_tasks()
    _add_profiles_and_series()
    _add_points()


def _add_nodes() -> None:
    op.create_table(
        "deleted_attempts",
        sa.Column("fence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uid", sa.String(length=16), nullable=True),
        sa.PrimaryKeyConstraint("fence"),
    )
    op.create_table(
        "discarded",
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("discarded_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("location"),
    )
    op.create_table(
        "join_tokens",
        sa.Column("id", sa.String(length=8), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.Column("last_used_at", sa.Float(precision=53), nullable=True),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=10), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("drain_requested_at", sa.Float(precision=53), nullable=True),
        sa.Column("unknown_ends", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("unknown_attempts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("protocol", sa.Integer(), nullable=True),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("devices", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("labels", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("info", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("load", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("pool", sa.String(length=32), server_default="", nullable=False),
        sa.Column("foreign_devices", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("first_seen", sa.Float(precision=53), nullable=False),
        sa.Column("last_seen", sa.Float(precision=53), nullable=False),
        sa.Column("removed_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_nodes_token_hash"), ["token_hash"], unique=False)


def _add_runs() -> None:
    op.create_table(
        "pair_passes",
        sa.Column("node_a", sa.String(length=10), nullable=False),
        sa.Column("node_b", sa.String(length=10), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("bytes_per_s", sa.Float(precision=53), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("node_a", "node_b"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=10), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("archived_at", sa.Float(precision=53), nullable=True),
        sa.Column("pinned_at", sa.Float(precision=53), nullable=True),
        sa.Column("baseline_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(
            "baseline_of_project",
            ["project"],
            unique=True,
            sqlite_where=sa.text("baseline_at IS NOT NULL"),
            postgresql_where=sa.text("baseline_at IS NOT NULL"),
        )
        batch_op.create_index(batch_op.f("ix_runs_project"), ["project"], unique=False)
        batch_op.create_index("listed_runs", ["created_at", "id", "archived_at"], unique=False)
        batch_op.create_index(
            "pinned_runs",
            ["id"],
            unique=False,
            sqlite_where=sa.text("pinned_at IS NOT NULL"),
            postgresql_where=sa.text("pinned_at IS NOT NULL"),
        )

    op.create_table(
        "saved_views",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("definition", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("saved_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _add_studies() -> None:
    op.create_table(
        "scaling_studies",
        sa.Column("id", sa.String(length=10), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("mode", sa.String(length=8), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("stop_requested_at", sa.Float(precision=53), nullable=True),
        sa.Column("points", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("scaling_studies", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_scaling_studies_created_at"), ["created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_scaling_studies_ended_at"), ["ended_at"], unique=False)

    op.create_table(
        "shared_links",
        sa.Column("id", sa.String(length=10), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("runs", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "snapshots",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("origin", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "store_identities",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.String(length=16), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("began_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(length=10), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("plan", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("stop_requested_at", sa.Float(precision=53), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("sweeps", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sweeps_created_at"), ["created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_sweeps_ended_at"), ["ended_at"], unique=False)


def _add_attempts() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", sa.String(length=10), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=True),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("run_id", sa.String(length=10), nullable=True),
        sa.Column("act", sa.String(length=16), nullable=True),
        sa.Column("lr_factor", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("last_sent_at", sa.Float(precision=53), nullable=True),
        sa.Column("gathers_until", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "attempts",
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=16), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("stop_requested_at", sa.Float(precision=53), nullable=True),
        sa.Column("stacks_requested_at", sa.Float(precision=53), nullable=True),
        sa.Column("end_requested_at", sa.Float(precision=53), nullable=True),
        sa.Column("end_reason", sa.String(length=32), nullable=True),
        sa.Column("end_message", sa.Text(), nullable=True),
        sa.Column("resize_requested_at", sa.Float(precision=53), nullable=True),
        sa.Column("resize_message", sa.Text(), nullable=True),
        sa.Column("rollback", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("turn_since", sa.Float(precision=53), nullable=True),
        sa.Column("not_before", sa.Float(precision=53), nullable=True),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("resume_checkpoint_id", sa.Integer(), nullable=True),
        sa.Column("changes", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("expected_start_at", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("next_step", sa.Text(), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("placed_at", sa.Float(precision=53), nullable=True),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("master_addr", sa.Text(), nullable=True),
        sa.Column("master_port", sa.Integer(), nullable=True),
        sa.Column("preflighted_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("fence"),
        sa.UniqueConstraint("run_id", "number"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_attempts_ended_at"), ["ended_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_attempts_state"), ["state"], unique=False)


def _add_history() -> None:
    op.create_table(
        "history",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("history", schema=None) as batch_op:
        batch_op.create_index("history_of_run", ["run_id", "id"], unique=False)

    op.create_table(
        "imported_runs",
        sa.Column("run_id", sa.String(length=10), nullable=False),
        sa.Column("format", sa.String(length=32), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("points", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("completed_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id"),
    )
    with op.batch_alter_table("imported_runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_imported_runs_digest"), ["digest"], unique=False)


def _add_marks_and_trials() -> None:
    op.create_table(
        "run_tags",
        sa.Column("run_id", sa.String(length=10), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "tag"),
    )
    with op.batch_alter_table("run_tags", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_run_tags_tag"), ["tag"], unique=False)

    op.create_table(
        "scaling_runs",
        sa.Column("run_id", sa.String(length=10), nullable=False),
        sa.Column("study_id", sa.String(length=10), nullable=False),
        sa.Column("point", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["study_id"], ["scaling_studies.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id"),
    )
    with op.batch_alter_table("scaling_runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_scaling_runs_study_id"), ["study_id"], unique=False)

    op.create_table(
        "sweep_trials",
        sa.Column("sweep_id", sa.String(length=10), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=True),
        sa.Column("params", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("rung_values", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("pruned_at", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.Column("value", sa.Float(precision=53), nullable=True),
        sa.Column("device_hours", sa.Float(precision=53), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "number"),
    )
    with op.batch_alter_table("sweep_trials", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sweep_trials_run_id"), ["run_id"], unique=False)


def _add_checkpoints() -> None:
    op.create_table(
        "alert_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("alert_id", sa.String(length=10), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=True),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("act", sa.String(length=16), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("message_id", sa.String(length=32), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_try_at", sa.Float(precision=53), nullable=False),
        sa.Column("tried_at", sa.Float(precision=53), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("alert_id", "key"),
    )
    with op.batch_alter_table("alert_events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_alert_events_state"), ["state"], unique=False)

    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("written_at", sa.Float(precision=53), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=True),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("upload_id", sa.Text(), nullable=True),
        sa.Column("upload_began_at", sa.Float(precision=53), nullable=True),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.Column("resend_requested_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fence", "node_rank", "path", "sha256"),
    )


def _add_preflights_and_files() -> None:
    op.create_table(
        "checks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("python", sa.Text(), nullable=True),
        sa.Column("bandwidth", sa.Boolean(), nullable=False),
        sa.Column("asked_at", sa.Float(precision=53), nullable=False),
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("stage_at", sa.Float(precision=53), nullable=False),
        sa.Column("rounds", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("measured", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fence"),
    )
    with op.batch_alter_table("checks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_checks_ended_at"), ["ended_at"], unique=False)

    op.create_table(
        "files",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("points_offset", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fence", "node_rank", "path", "generation"),
    )


def _add_findings_and_jobs() -> None:
    op.create_table(
        "findings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("meaning", sa.Text(), nullable=False),
        sa.Column("fix", sa.Text(), nullable=False),
        sa.Column("first_at", sa.Float(precision=53), nullable=False),
        sa.Column("gone_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fence", "node_rank", "kind"),
    )
    op.create_table(
        "jobs",
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("gateway_id", sa.String(length=10), nullable=False),
        sa.Column("said", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["gateway_id"],
            ["nodes.id"],
        ),
        sa.PrimaryKeyConstraint("fence"),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_gateway_id"), ["gateway_id"], unique=False)


def _add_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(length=10), nullable=False),
        sa.Column("device_kind", sa.String(length=8), nullable=False),
        sa.Column("devices", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("argv", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("env", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("cwd", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("next_step", sa.Text(), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("interpreter", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("preflight", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("stacks", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("collectives", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("timeline", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("reported_at", sa.Float(precision=53), nullable=True),
        sa.Column("lost_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["node_id"],
            ["nodes.id"],
        ),
        sa.PrimaryKeyConstraint("fence", "node_rank"),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tasks_node_id"), ["node_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_state"), ["state"], unique=False)


def _add_profiles_and_series() -> None:
    op.create_table(
        "profiled_ranks",
        sa.Column("profile_id", sa.String(length=10), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("requested_at", sa.Float(precision=53), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("step_s_before", sa.Float(precision=53), nullable=True),
        sa.Column("overview", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("flame", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("profile_id", "rank"),
    )
    with op.batch_alter_table("profiled_ranks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_profiled_ranks_fence"), ["fence"], unique=False)

    op.create_table(
        "series",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=8), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("first_wall", sa.Float(precision=53), nullable=False),
        sa.Column("last_wall", sa.Float(precision=53), nullable=False),
        sa.Column("last_value", sa.LargeBinary(8), nullable=False),
        sa.Column("last_number", sa.Float(precision=53), nullable=True),
        sa.Column("lowest", sa.Float(precision=53), nullable=True),
        sa.Column("highest", sa.Float(precision=53), nullable=True),
        sa.Column("finite_sum", sa.Float(precision=53), nullable=False),
        sa.Column("finite_count", sa.BigInteger(), nullable=False),
        sa.Column("not_finite_since", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["fence"], ["attempts.fence"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fence", "node_rank", "source", "tag"),
    )


def _add_points() -> None:
    op.create_table(
        "checked_nodes",
        sa.Column("check_id", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(length=10), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("devices", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("facts", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("answered_stage", sa.Integer(), nullable=False),
        sa.Column("silent_s", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["checks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("check_id", "node_rank"),
    )
    with op.batch_alter_table("checked_nodes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_checked_nodes_node_id"), ["node_id"], unique=False)

    op.create_table(
        "chunks",
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("step_min", sa.BigInteger(), nullable=False),
        sa.Column("step_max", sa.BigInteger(), nullable=False),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("series_id", "level", "seq"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    raise NotImplementedError("restore the copy in backups/ instead")
