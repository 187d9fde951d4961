"""Starts a program whose variables and arguments are to be read by others."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.end_to_end.product import wait_for


def started(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start it and wait until its variables can be read: the kernel shows them a moment after the start is over."""
    process: subprocess.Popen[bytes] = subprocess.Popen(argv, **options)
    wait_for(Path(f"/proc/{process.pid}/environ").read_bytes, "the variables of a program to be shown")
    return process
