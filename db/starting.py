"""Whether the ranks of an attempt may start: not before all its nodes train with the same."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.agreement import Told, disagreement, names, remark
from db.models import Attempt, Node, Part
from db.requests import note
from db.states import TERMINAL_STATES, Reason, State


def may_start(session: Session, fence: int) -> bool:
    """True once every node has said what it trains with (and what they said was compared), for good.

    A node alone need not wait."""
    known = select(func.count(), func.count(Part.interpreter)).where(Part.fence == fence)
    parts, told = session.execute(known).one()
    return bool(parts == 1 or parts == told)


def compare(session: Session, attempt: Attempt, now: float) -> None:
    """After a node has spoken: say for whom the others wait, or when all have, end what cannot agree."""
    found = _parts_and_nodes(session, attempt.fence)
    silent = [node for part, node in found if part.interpreter is None]
    attempt.waiting_for = f"waits for {names(silent)} to say which Python trains there" if silent else None
    if silent or attempt.stop_requested_at is not None:
        return
    told = [Told(node, part.interpreter or {}) for part, node in found]
    if text := disagreement(told):
        for part, _ in found:
            if part.state not in TERMINAL_STATES:  # none of them has a process yet
                part.state, part.reason, part.message = State.FAILED, Reason.LAUNCH_FAILED, text
    elif text := remark(told):
        note(session, attempt.run_id, attempt.number, now, text)


def _parts_and_nodes(session: Session, fence: int) -> Sequence[tuple[Part, str]]:
    query = (
        select(Part, Node.name)
        .join(Node, Node.id == Part.node_id)
        .where(Part.fence == fence)
        .order_by(Part.node_rank)
    )
    return [(part, name) for part, name in session.execute(query)]
