"""The end of a command that failed."""

from __future__ import annotations


class CommandFailed(Exception):
    """One sentence for the person; exit code 1: it did not work, 2: it was asked for wrongly."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
