"""Copy what a rank prints into a log of its own, where several ranks share one terminal or pipe.

Only what goes through Python's own streams is copied; the streams behave as before in all else."""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER_VARIABLE = "RANKZERO_RANK_LOGS"
"""Names the folder of the logs, where nothing else divides the output of several ranks."""


class _CopiedFile(io.FileIO):
    """A descriptor of the process whose bytes also go into a log."""

    def __init__(self, descriptor: int, copy: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._copy = copy

    def write(self, content: Any) -> int | None:  # type: ignore[override]
        """Write to the descriptor, then the same bytes to the log. Raises OSError of the first alone."""
        written = super().write(content)
        if written:
            try:  # noqa: SIM105 - contextlib costs 3 ms
                os.write(self._copy, memoryview(content).cast("B")[:written])
            except OSError:  # a full disk: the script goes on
                pass
        return written


def copy_streams(folder: str, rank: str) -> None:
    """Copy standard output and error of this process to rank<R>.out and rank<R>.err, where those can be made."""
    if not rank.isdigit():
        return
    for name, suffix in (("stdout", "out"), ("stderr", "err")):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            path = f"{folder}/rank{rank}.{suffix}"
            try:
                copy = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError:  # a full disk, or the folder is delivered and gone: the rest of the probe works on
                continue
            setattr(sys, name, _with_copy(stream, copy))


def _with_copy(stream: io.TextIOWrapper, copy: int) -> io.TextIOWrapper:
    stream.flush()
    raw = _CopiedFile(stream.fileno(), copy)
    binary: Any = raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw)
    copied = io.TextIOWrapper(
        binary, stream.encoding, stream.errors, line_buffering=stream.line_buffering, write_through=stream.write_through
    )
    copied.mode = stream.mode  # type: ignore[misc]
    return copied
