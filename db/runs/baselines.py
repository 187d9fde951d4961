"""The baselines of projects, and how a run compares to its project's."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.metrics.many_curves import series_rows
from db.metrics.run_results import results_of
from db.models import Run
from domain.goals import BaselineChange, better_percent, main_metric
from domain.messages import SCRIPT_KINDS
from domain.views import RunView


def baseline_of(session: Session, project: str) -> Run | None:
    """The baseline of a project; None where it has none."""
    return session.scalars(select(Run).where(Run.project == project, Run.baseline_at.is_not(None))).first()


def common_baseline(store: Store, run_ids: Collection[str]) -> str | None:
    """The baseline of the runs' projects; None where these have none or several."""
    projects = select(Run.project).where(Run.id.in_(run_ids))
    with store.read() as session:
        baselines = select(Run.id).where(Run.project.in_(projects), Run.baseline_at.is_not(None)).limit(2)
        ids = session.scalars(baselines).all()
    return ids[0] if len(ids) == 1 else None


def against_baseline(session: Session, run: RunView) -> BaselineChange | None:
    """The run's best value beside the baseline's; None for the baseline itself, and where there is none."""
    baseline = None if run.baseline else baseline_of(session, run.project)
    if baseline is None:
        return None
    ids = (run.id, baseline.id)
    rows = [row for row in series_rows(session, ids, sources=SCRIPT_KINDS) if row.node_rank == 0]
    own, other = ({row.name for row in rows if row.run_id == run_id} for run_id in ids)
    metric = main_metric(own & other)
    if metric is None:
        return BaselineChange(baseline.id, baseline.name, None, None, None, None)
    results = results_of(session, ids, [row for row in rows if row.name == metric])
    value, base = (results[run_id][metric].best for run_id in ids)
    change = better_percent(metric, value, base)
    return BaselineChange(baseline.id, baseline.name, metric, value, base, change)
