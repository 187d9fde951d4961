"""Pairs of nodes with a successful all-reduce, remembered until their versions or addresses change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from sqlalchemy.orm import Session

from db.models import PairPass
from domain.messages import NodeCheck
from domain.preflight import Pair, library_versions


def not_passed(session: Session, facts: Sequence[tuple[str, NodeCheck]], pairs: Iterable[Pair]) -> list[Pair]:
    """The candidate pairs without a successful all-reduce since their nodes' versions or addresses changed."""
    return [(a, b) for a, b in pairs if passed_before(session, facts[a], facts[b]) is None]


def passed_before(session: Session, first: tuple[str, NodeCheck], second: tuple[str, NodeCheck]) -> PairPass | None:
    (node_a, a), (node_b, b) = sorted((first, second), key=lambda item: item[0])
    stored = session.get(PairPass, (node_a, node_b))
    return stored if stored is not None and stored.fingerprint == fingerprint(a, b) else None


def fingerprint(*facts: NodeCheck) -> str:
    identities = [
        [node_facts.address, node_facts.interface, library_versions(node_facts.interpreter)] for node_facts in facts
    ]
    return hashlib.sha256(json.dumps(identities).encode()).hexdigest()
