"""Commands as a person would type them in a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def shell_line(argv: Sequence[str]) -> str:
    """The command quoted for a shell; placeholders such as <port> stay readable."""
    return " ".join(argument if _is_placeholder(argument) else shlex.quote(argument) for argument in argv)


def _is_placeholder(argument: str) -> bool:
    bare = argument.replace("<", "").replace(">", "")
    return bare != argument and shlex.quote(bare) == bare
