"""The starts of a run's later attempts and their differences from the previous one, for its curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.models import Attempt
from domain.scheduling.resizing import effective
from domain.spec import RunSpec
from domain.text.formats import plural
from domain.views import AttemptChange


def attempt_changes(session: Session, run_id: str, spec: RunSpec) -> list[AttemptChange]:
    """The starts of all attempts but the first, oldest first."""
    query = select(Attempt.number, Attempt.changes).where(Attempt.run_id == run_id).order_by(Attempt.number)
    return marks(spec, [(number, changes) for number, changes in session.execute(query)])


def marks(spec: RunSpec, attempts: Sequence[tuple[int, Mapping[str, Any] | None]]) -> list[AttemptChange]:
    """attempt 2: 1 node, accumulation 2"""
    changes = []
    for (_, before), (number, after) in pairwise(attempts):
        words = _differences(effective(spec, before), effective(spec, after))
        changes.append(AttemptChange(number, f"attempt {number}{': ' if words else ''}{', '.join(words)}"))
    return changes


def _differences(before: RunSpec, after: RunSpec) -> list[str]:
    texts = {
        plural(after.nodes, "node"): before.nodes != after.nodes,
        f"accumulation {after.accumulate}": before.accumulate != after.accumulate,
        f"batch {after.batch_size}": before.batch_size != after.batch_size,
        f"lr {after.scaled_lr or 0:.4g}": before.scaled_lr != after.scaled_lr,
    }
    return [words for words, is_different in texts.items() if is_different]
