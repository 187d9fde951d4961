"""What an import leaves out: each source is told once with the reason, and holds up no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from worker.node.run_files import MAX_ENTRIES, walk_files

T = TypeVar("T")
MOST_CHARACTERS = 300


class LeftOut:
    """The sources that are not imported, or not as a whole, and why."""

    def __init__(self) -> None:
        self._told: dict[Path, list[str]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, source: Path) -> bool:
        return source in self._told

    def add(self, source: Path, what: str) -> None:
        """Note in a sentence what of a source is left out."""
        sentences = self._told.setdefault(source, [])
        if what not in sentences:
            sentences.append(what)

    def walk(self, root: Path, matches: Callable[[str], bool]) -> list[Path]:
        """Return the files below a folder whose name matches; what is not looked at is left out."""
        what = f"It has more than {MAX_ENTRIES:,} files and folders, and the others were not looked at."
        return [Path(entry.path) for entry in walk_files(root, matches, cut=lambda: self.add(root, what))]

    def attempt(self, source: Path, read: Callable[[], T]) -> Iterator[T]:
        """Yield what `read` returns; where it raises, its source is left out."""
        try:
            result = read()
        except Exception as error:  # whatever a damaged file makes a reader do
            self.add(source, f"It cannot be read ({reason_of(error)}).")
            return
        yield result

    def guarded(self, source: Path, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of a source; where reading them raises, the rest is left out."""
        try:
            yield from items
        except Exception as error:  # whatever a damaged file makes a reader do
            self.add(source, f"It cannot be read to its end ({reason_of(error)}).")

    def lines(self) -> list[str]:
        """Return a line for each source."""
        return [f"{source}: {' '.join(sentences)}" for source, sentences in self._told.items()]


def reason_of(error: Exception) -> str:
    """Return an exception in one line."""
    text = " ".join(str(error).split())[:MOST_CHARACTERS]
    return text or type(error).__name__
