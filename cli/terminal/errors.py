"""The error that ends a command."""

from __future__ import annotations


class CommandFailed(Exception):
    """A failed command with one sentence for the user; exit code 1: it failed, 2: wrong usage."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
