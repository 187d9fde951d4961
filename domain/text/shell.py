"""Commands as one would type them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def shell_line(argv: Sequence[str]) -> str:
    """A command as one would type it; placeholders such as <port> stay readable."""
    return " ".join(word if _is_placeholder(word) else shlex.quote(word) for word in argv)


def _is_placeholder(word: str) -> bool:
    bare = word.replace("<", "").replace(">", "")
    return bare != word and shlex.quote(bare) == bare
