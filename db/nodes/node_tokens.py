"""Tokens of nodes, stored as hashes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class TurnedAway:
    """A credential that is no longer valid; the message says since when and what to do."""

    message: str
    is_node: bool = True


def hash_token(token: str) -> str:
    """The hash that is stored of a token, so that a stolen copy of the store grants no access."""
    return hashlib.sha256(token.encode()).hexdigest()
