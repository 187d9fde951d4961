"""What nodes found in a preflight, taken into the store: the check goes on, and with it a run that waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from db import checks
from db.engine import Store
from db.models import Check
from db.states import CheckAnswer


def check_answered(
    store: Store, node_id: str, check_id: int, said: CheckAnswer, now: float
) -> tuple[bool, list[str]]:
    """Take a node's answer: whether the check went on, and the ids of the runs that did."""
    with store.write() as session:
        check = checks.answered(session, node_id, check_id, said, now)
        return check is not None, _go_on(session, [check] if check else [], now)


def checks_overdue(store: Store, now: float) -> tuple[bool, list[str]]:
    """Go on without nodes that are too late: whether any check did, and the ids of the runs that did."""
    with store.read() as session:
        if not checks.has_open(session):
            return False, []
    with store.write() as session:
        moved = checks.overdue(session, now)
        return bool(moved), _go_on(session, moved, now)


def _go_on(session: Session, moved: Sequence[Check], now: float) -> list[str]:
    return []
