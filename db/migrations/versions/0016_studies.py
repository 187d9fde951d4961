"""One table of studies for sweeps and scaling studies, and one of their trials."""

from __future__ import annotations

from itertools import groupby

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
SHARED = ("id", "spec", "by", "only_project", "created_at", "stop_requested_at", "ended_at")
SHARED_SQL = ", ".join(f'"{name}"' for name in SHARED)
RESULT_SQL = "number, run_id, params, rung, rung_values, pruned_at, state, value, device_hours, message"


def upgrade() -> None:
    """Carry the rows over: runs of a scaling study become trials, and so do its points that could not be launched."""
    studies, trials = _add_studies(), _add_trials()
    for into, out_of in (
        (f"studies (kind, plan, message, {SHARED_SQL})", f"'sweep', plan, message, {SHARED_SQL} FROM sweeps"),
        (f"study_trials (study_id, {RESULT_SQL})", f"sweep_id, {RESULT_SQL} FROM sweep_trials"),
    ):
        op.execute(f"INSERT INTO {into} SELECT {out_of}")
    _carry_scaling_over(studies, trials)
    for table in ("sweep_trials", "sweeps", "scaling_runs", "scaling_studies"):
        op.drop_table(table)


def _carry_scaling_over(studies: sa.Table, trials: sa.Table) -> None:
    connection = op.get_bind()
    shared = [sa.column(name, studies.c[name].type) for name in SHARED]
    measured = [sa.column("mode"), sa.column("steps"), sa.column("points", JSON)]
    old = sa.select(*shared, *measured).select_from(sa.table("scaling_studies"))
    runs = _runs_by_study(connection)
    for *values, mode, steps, points in connection.execute(old).all():
        planned = [{name: value for name, value in point.items() if name != "problem"} for point in points]
        row = dict(zip(SHARED, values, strict=True))
        plan = {"mode": mode, "steps": steps, "points": planned}
        connection.execute(studies.insert().values(row | {"kind": "scaling", "plan": plan}))
        problems = [(number, point["problem"]) for number, point in enumerate(points) if "problem" in point]
        launched = [{"run_id": run_id, "params": {"point": point}} for run_id, point in runs.get(row["id"], ())]
        refused = [{"params": {"point": at}, "state": "failed", "message": problem} for at, problem in problems]
        for number, trial in enumerate(launched + refused):
            connection.execute(trials.insert().values({"study_id": row["id"], "number": number, "rung": 0} | trial))


def _runs_by_study(connection: sa.Connection) -> dict[str, list[tuple[str, int]]]:
    """Return the runs of each study with their points, in the order of their launch."""
    query = (
        "SELECT s.study_id, s.run_id, s.point FROM scaling_runs s JOIN runs r ON r.id = s.run_id "
        "ORDER BY s.study_id, r.created_at, s.run_id"
    )
    rows = connection.execute(sa.text(query)).all()
    return {study: [(run, point) for _, run, point in of] for study, of in groupby(rows, key=lambda row: row[0])}


def _add_studies() -> sa.Table:
    studies = op.create_table(
        "studies",
        sa.Column("id", sa.String(length=10), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("plan", JSON, nullable=False),
        sa.Column("by", sa.String(length=40), nullable=True),
        sa.Column("only_project", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("stop_requested_at", sa.Float(precision=53), nullable=True),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_studies_created_at", "studies", ["created_at"])
    op.create_index("ix_studies_ended_at", "studies", ["ended_at"])
    return studies


def _add_trials() -> sa.Table:
    trials = op.create_table(
        "study_trials",
        sa.Column("study_id", sa.String(length=10), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=10), nullable=True),
        sa.Column("params", JSON, nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("rung_values", JSON, nullable=True),
        sa.Column("pruned_at", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=True),
        sa.Column("value", sa.Float(precision=53), nullable=True),
        sa.Column("device_hours", sa.Float(precision=53), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("study_id", "number"),
    )
    op.create_index("ix_study_trials_run_id", "study_trials", ["run_id"])
    return trials
