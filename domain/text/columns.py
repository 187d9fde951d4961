"""The description of a list: its columns, each with a title, the words of an entry, and its side. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Column(Generic[Entry]):
    """One column of a list, left-aligned.

    An entry is a view, or the JSON object that the server made of it, whose fields are attributes too."""

    title: str
    """As a terminal shows it; a page begins it with a capital."""
    words: Callable[[Entry], object] | None = None
    """The text of an entry's cell; None for the field that is named like the title."""
    is_figure: ClassVar[bool] = False

    @property
    def heading(self) -> str:
        """The title on a page."""
        return self.title[:1].upper() + self.title[1:]

    def cell(self, entry: Entry) -> object:
        """Return the text of an entry's cell; empty for what is unknown."""
        value = self.words(entry) if self.words else getattr(entry, self.title)
        return "" if value is None else value


class Figure(Column[Entry]):
    """A column of figures: right-aligned, and never folded."""

    is_figure = True


Columns = Sequence[Column[Entry]]
