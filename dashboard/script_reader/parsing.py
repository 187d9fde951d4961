"""Parse Python without running it, one text at a time."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 counts a syntax tree's depth across threads: two parses at once may raise a SystemError."""


def parsed(text: str | bytes) -> ast.Module:
    """Return the syntax tree of a program. Raises the errors of `ast.parse`."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)


def parsed_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression. Raises the errors of `ast.parse`."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, mode="eval").body
