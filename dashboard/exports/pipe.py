"""A file that is read while it is written: what a writer puts in is sent to a client piece by piece."""

from __future__ import annotations


class Pipe:
    """The part of a writable file's interface that zipfile and pyarrow use; it cannot seek."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def write(self, content: bytes) -> int:
        """Take bytes, which `take` returns later."""
        piece = bytes(content)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._position

    def writable(self) -> bool:
        """Say that bytes can be written."""
        return True

    def readable(self) -> bool:
        """Say that the writer cannot read its bytes again."""
        return False

    def seekable(self) -> bool:
        """Say that the writer cannot go back."""
        return False

    def flush(self) -> None:
        """Do nothing: the reader takes the bytes when it can."""

    def close(self) -> None:
        """Do nothing: bytes that were written can still be taken."""

    def take(self) -> bytes:
        """Return and forget the bytes written since the last call."""
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content
