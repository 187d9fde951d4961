"""What this process writes: copied into the run's logs while it is watched, and our own lines to people."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


class Copied:
    """A text stream whose writes are also appended to a file, until `close`.

    The stream's own `write` is replaced: also those who hold the stream itself write through it."""

    def __init__(self, stream: Any, file: Path) -> None:
        """Raises OSError where the file cannot be opened, AttributeError where the stream takes no other `write`."""
        self._stream, self._write = stream, stream.write
        self._file: int | None = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._replacement = self.write  # each look at a method makes another object
        stream.write = self._replacement

    def write(self, text: str) -> Any:
        """Write to the stream as before, then to the file; a full disk loses the copy only."""
        result = self._write(text)
        with suppress(Exception):
            if self._file is not None:
                os.write(self._file, text.encode(errors="backslashreplace"))
        return result

    def close(self) -> None:
        """Copy nothing more, and let the stream write as before, unless somebody has replaced its `write` meanwhile."""
        if vars(self._stream).get("write") is self._replacement:
            del self._stream.write
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_said: set[str] = set()


def say(text: str) -> None:
    """Write a line to people; never raises."""
    with suppress(Exception):
        print(f"rankzero: {text}", file=sys.stderr)


def say_once(text: str) -> None:
    """Write a line, but only the first time that it is said in this process."""
    if text not in _said:
        _said.add(text)
        say(text)
