"""Lines of our own logs: one a message, whatever names of files and nodes hold; pure but for `log_to_stderr`."""

from __future__ import annotations

import logging

from domain.masking import masked_text

NESTED = "  | "
"""Before each line of a traceback, so that none of them can pass for a message."""


class LineFormatter(logging.Formatter):
    """Writes control characters out, hides passwords in addresses, and sets tracebacks off."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The message on one line."""
        return one_line(masked_text(super().formatMessage(record)))

    def formatException(self, ei: object) -> str:
        """A traceback below it."""
        text = masked_text(super().formatException(ei))  # type: ignore[arg-type]
        return "\n".join(NESTED + one_line(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """The text with line breaks, control characters and marks of direction written out, like \\n and \\x1b."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def log_to_stderr(level: int, layout: str = "%(asctime)s %(message)s") -> None:
    """Write the log of this program to its standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(layout))
    logging.basicConfig(level=level, handlers=[handler], force=True)
