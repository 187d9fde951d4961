"""What people may change about a run after its launch: how it is named, sorted and described."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from domain.printed_pattern import checked
from domain.spec import Argument, Label

MOST_TAGS = 50
"""Tags of one run."""
_NOT_IN_TAGS = frozenset('",|')


def check_tag(value: str) -> str:
    """Return a tag, which is one word of a search and of the command line. Raises ValueError."""
    has_space = any(c.isspace() or not c.isprintable() for c in value)
    if not 0 < len(value) <= 64 or has_space or _NOT_IN_TAGS & set(value) or value[0] in "+-":
        raise ValueError(f"a tag has 1 to 64 characters without spaces, quotes, commas and |, got {value[:64]!r}")
    return value


def _check_text(value: str) -> str:
    if any((ord(c) < 32 and c not in "\n\t") or 0xD800 <= ord(c) < 0xE000 for c in value):
        raise ValueError("must not contain control characters")
    return value.strip()


def _check_pattern(value: str) -> str:
    return checked(value) if value.strip() else ""


Tag = Annotated[str, AfterValidator(check_tag)]
Tags = Annotated[list[Tag], Field(max_length=MOST_TAGS)]


class RunEdit(BaseModel):
    """A change to a run; `None` leaves a field as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[Label, Field(min_length=1)] | None = None
    project: Annotated[Label, Field(min_length=1)] | None = None
    note: Annotated[str, Field(max_length=10_000), AfterValidator(_check_text)] | None = None
    """Plain text; empty removes it."""
    archived: bool | None = None
    """Archived runs are listed only by a search for `archived:yes`."""
    pinned: bool | None = None
    """Pinned runs come first."""
    baseline: bool | None = None
    """The baseline of its project, instead of another run."""
    printed_pattern: Annotated[Argument, AfterValidator(_check_pattern)] | None = None
    """How printed lines are read, in a live attempt too; empty leaves that to the rules."""
    add_tags: Tags = []
    remove_tags: Tags = []
