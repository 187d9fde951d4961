"""Two values of a spec as text, with enough digits to tell them apart."""

from __future__ import annotations

import shlex
from typing import Any

NOT_SET = "–"


def in_words(old: Any, new: Any) -> tuple[str, str]:
    """Return both values as people write them; different values never read the same."""
    texts = _as_text(old), _as_text(new)
    return texts if texts[0] != texts[1] else (repr(old), repr(new))


def _as_text(value: Any) -> str:
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return shlex.join(str(item) for item in value) or NOT_SET
    return str(value)
