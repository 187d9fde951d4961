"""Errors in what a person asked for, independent of the store."""

from __future__ import annotations


class InvalidRequest(Exception):
    """A request that cannot be granted: `field` names the invalid field, the message states the rule."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


class NoSuchReference(InvalidRequest):
    """A field names an object that does not exist, or not for the person: both are answered alike."""
