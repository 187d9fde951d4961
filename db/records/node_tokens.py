"""Tokens of nodes, as the store keeps them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class TurnedAway:
    """A credential was good once; the sentence says since when it is not, and what to do."""

    message: str
    is_node: bool = True


def hash_token(token: str) -> str:
    """What the store keeps of a token: a stolen copy of the store opens no door."""
    return hashlib.sha256(token.encode()).hexdigest()
