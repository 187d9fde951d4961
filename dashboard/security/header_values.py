"""Values of response headers that several kinds of answers share."""

from __future__ import annotations

import hashlib
from base64 import b64encode

NO_STORE = {"Cache-Control": "no-store"}
"""No browser and no proxy may keep the answer."""


def source_hash(text: str) -> str:
    """The source expression with which a content security policy allows this inline script or style."""
    return "'sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
