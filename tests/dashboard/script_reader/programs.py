"""Programs for tests of the readers: a script's text, as a file that is read."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dashboard.script_reader.source import ScriptProgram, read_program


def program_in(text: str, name: str = "train.py") -> ScriptProgram:
    """Read a program of one file. Raises UnreadableScript."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text, "utf-8", "surrogatepass")
        return read_program(Path(folder), name)
