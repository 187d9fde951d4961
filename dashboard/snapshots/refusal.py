"""Why code cannot be brought: the field that is wrong and one sentence with the rule."""

from __future__ import annotations


class CodeRefused(Exception):
    """Code that cannot be brought; used on both sides, so it knows neither store nor HTTP."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
