"""What the store holds of a token, so that a stolen copy of it grants no access."""

from __future__ import annotations

import hashlib


def hash_token(token: str) -> str:
    """The hash that is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
