"""Format our logs with one line per message, whatever file and node names contain; pure but for `log_to_stderr`."""

from __future__ import annotations

import logging

from domain.masking.masking import masked_text
from domain.masking.values import ValueMask

NESTED = "  | "
"""Prefix of each line of a traceback, so that none can be mistaken for a message."""
hidden = ValueMask()
"""All secrets that this program was given."""


class LineFormatter(logging.Formatter):
    """Escape control characters, mask passwords in URLs and secrets that we know, and indent tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The message as one line."""
        return one_line(_masked(super().formatMessage(record)))

    def formatException(self, ei: object) -> str:
        """The traceback, every line prefixed with `NESTED`."""
        text = _masked(super().formatException(ei))  # type: ignore[arg-type]
        return "\n".join(NESTED + one_line(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """The text with line breaks, control characters and direction marks escaped, like \\n and \\x1b."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _masked(text: str) -> str:
    return hidden.text(masked_text(text))


def log_to_stderr(level: int, layout: str = "%(asctime)s %(message)s") -> None:
    """Send this program's log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(layout))
    logging.basicConfig(level=level, handlers=[handler], force=True)
