"""Durations as people write them in options: 90, 30m, 24h, 7d."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from cli.terminal import CommandFailed

UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
Expires = Annotated[str, typer.Option(metavar="TIME", help="Ends after this time (8h, 30d), or never.")]
"""When an access token ends."""


def seconds(text: str, option: str) -> float:
    """Parse a duration into seconds. Raises CommandFailed."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip(), re.ASCII)
    if match is None:
        raise CommandFailed(f"{option} must be a time such as 30m, 24h or 7d, got {text!r}.", 2)
    return float(match[1]) * UNITS_S[match[2]]


def hours_s(text: str | None, option: str) -> float | None:
    """Parse a duration that is in hours where it has no unit into seconds; None stays None. Raises CommandFailed."""
    if text is None:
        return None
    return seconds(text if text.strip()[-1:].isalpha() else f"{text.strip()}h", option)


def lifetime_s(expires: str) -> float | None:
    """The seconds that an access token is to last; None: without end. Raises CommandFailed."""
    return None if expires == "never" else seconds(expires, "--expires")
