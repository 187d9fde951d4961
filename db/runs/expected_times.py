"""How long a launch will take, from the runs of the same code that the actor sees."""

from __future__ import annotations

from sqlalchemy import or_, select

from db.engine import Store
from db.models import Attempt, Run
from db.people.visibility import visible_runs
from domain.agents.expectation import EarlierRun, Expected, expected
from domain.messages import State
from domain.spec import RunSpec

MOST_SEARCHED = 1000
"""Runs among which those of the same code are looked for, the newest."""
MOST_READ = 50


def expected_time(store: Store, spec: RunSpec) -> Expected | None:
    """Return how long a complete spec will take; None where no earlier run tells."""
    newest = select(Run.id).where(visible_runs()).order_by(Run.created_at.desc()).limit(MOST_SEARCHED)
    target, snapshot = Run.spec["target"].as_string(), Run.spec["snapshot"].as_string()
    query = (
        select(Run.id, Run.spec, Attempt.ended_at - Attempt.placed_at)
        .join(Attempt, Attempt.run_id == Run.id)
        .where(Run.id.in_(newest), or_(target == spec.target, snapshot == (spec.snapshot or "")))
        .where(Attempt.number == 1, Attempt.state == State.SUCCEEDED, Attempt.resume_checkpoint_id.is_(None))
        .where(Attempt.placed_at.is_not(None), Attempt.ended_at.is_not(None))
        .order_by(Run.created_at.desc(), Run.id)
        .limit(MOST_READ)
    )
    with store.read() as session:
        rows = session.execute(query).all()
    return expected(spec, [EarlierRun(run_id, RunSpec.model_validate(stored), s) for run_id, stored, s in rows])
