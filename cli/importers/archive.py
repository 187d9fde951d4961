"""Archives of other installations, which the dashboard imports itself: the file is only sent."""

from __future__ import annotations

import socket
import zipfile
from pathlib import Path
from typing import Any

from cli.server.client import ServerClient
from dashboard.archives.manifest import MANIFEST

IMPORT_TIMEOUT_S = 1800.0
"""The dashboard verifies and stores everything before it answers."""


def is_archive(path: Path) -> bool:
    """Whether a file is an archive of runs."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as opened:
            return MANIFEST in opened.namelist()
    except (zipfile.BadZipFile, OSError):
        return False


def import_archive(server: ServerClient, path: Path) -> list[dict[str, Any]]:
    """Send an archive and return its runs, as `rankzero import` prints them. Raises CommandFailed."""
    source = f"{socket.gethostname()}:{path.absolute()}"
    runs = server.post_file("/api/archives", path, IMPORT_TIMEOUT_S, source=source)
    return [{**run, "source": str(path)} for run in runs]
