"""The error for code that cannot be packed: the wrong field, and a sentence with the rule."""

from __future__ import annotations

from domain.errors import InvalidRequest


class CodeRefused(InvalidRequest):
    """Code that cannot be packed, on the client's machine or the server's."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, f"{field}: {message}")
        self.field: str = field
