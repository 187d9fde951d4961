"""Requests of people that cannot be granted, whatever the store says."""

from __future__ import annotations


class InvalidRequest(Exception):
    """A wish that cannot be granted: `field` names what is wrong, the text is one sentence with the rule."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field
