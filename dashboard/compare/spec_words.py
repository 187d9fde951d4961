"""Values of a spec as text, with enough digits to tell them apart; commands import it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from domain.text.formats import learning_rate


def in_words(old: Any, new: Any) -> tuple[str, str]:
    """Return both values as people write them; different values never read the same."""
    before, after = all_in_words([old, new])
    return before, after


NOT_SET = "–"


def all_in_words(values: Sequence[Any]) -> list[str]:
    """Return the values as people write them; different values never read the same."""
    texts = [_as_text(value) for value in values]
    written = {(text, repr(value)) for text, value in zip(texts, values, strict=True)}
    return texts if len(written) == len(set(texts)) else [repr(value) for value in values]


def _as_text(value: Any) -> str:
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return learning_rate(value)
    if isinstance(value, list):
        return shlex.join(str(item) for item in value) or NOT_SET
    return str(value)
