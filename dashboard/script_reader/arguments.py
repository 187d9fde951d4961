"""Read a training script's options from its source, without executing it."""

from __future__ import annotations

from pathlib import Path

from dashboard.script_reader import reading
from dashboard.script_reader.options import Option, default_of
from dashboard.script_reader.source import UnreadableScript, program_in

__all__ = ["Option", "default_of", "options_in", "read_options"]


def read_options(script: Path) -> list[Option]:
    """Return the options of a script; none where it cannot be read or parsed."""
    try:
        return reading.read_script(script.parent, script.name).options
    except UnreadableScript:
        return []


def options_in(source: str) -> list[Option]:
    """Return the options in a program's text, in the order in which they are added."""
    try:
        return reading.script_in(program_in(source)).options
    except UnreadableScript:
        return []
