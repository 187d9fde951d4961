"""Errors in what a person asked for, independent of the store."""

from __future__ import annotations


class InvalidRequest(Exception):
    """A request that cannot be granted: `field` names the invalid field, the message states the rule."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


class NoSuchReference(InvalidRequest):
    """What a field names does not exist, or not for the person: the two are answered alike."""
