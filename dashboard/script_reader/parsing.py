"""Reading Python without running it, one text at a time."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 counts how deep a syntax tree is for all threads together: two at once may end in a SystemError."""


def parsed(text: str | bytes) -> ast.Module:
    """The syntax tree of a program. Raises as `ast.parse` does."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)


def parsed_expression(text: str) -> ast.expr:
    """The syntax tree of an expression. Raises as `ast.parse` does."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, mode="eval").body
