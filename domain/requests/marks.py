"""The marks of a model's fields: what they are annotated with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic.fields import FieldInfo


def marks_of(field: FieldInfo) -> list[Any]:
    """Return what a field and the parts of its type are annotated with."""
    return [*field.metadata, *_marks(field.annotation)]


def _marks(annotation: Any) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())
    for part in get_args(annotation):
        yield from _marks(part)
