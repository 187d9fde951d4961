"""Durations as people type them: 90, 30m, 24h, 7d."""

from __future__ import annotations

import re

from cli.terminal.errors import CommandFailed

UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(text: str, option: str) -> float:
    """Parse a duration into seconds; a bare number is seconds. Raises CommandFailed."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip(), re.ASCII)
    if match is None:
        raise CommandFailed(f"{option} must be a time such as 30m, 24h or 7d, got {text!r}.", 2)
    return float(match[1]) * UNITS_S[match[2]]
