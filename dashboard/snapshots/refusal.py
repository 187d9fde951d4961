"""The error for code that cannot be packed: the wrong field, and a sentence with the rule."""

from __future__ import annotations


class CodeRefused(Exception):
    """Code that cannot be packed; raised by client and server, so independent of store and HTTP."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
