"""Lists the files that lay in a watched command's folder before its start: none of them is the run's.

They are told by the time of their last change, which no program can set back. So the list can be made after the start,
and a folder with many files delays no command.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from worker.node.attempt_files import EXISTING_FILE
from worker.node.run_files import counts, file_key, walk_files


def remember_files_before(attempt_dir: Path, cwd: Path, started_at: float) -> None:
    """Write the list of files last changed before `started_at` (seconds since the epoch), once. Raises OSError."""
    path = attempt_dir / EXISTING_FILE
    if path.exists():
        return
    listing = {}
    for entry in walk_files(cwd.resolve(), counts):
        with suppress(OSError):  # it was just deleted
            status = entry.stat(follow_symlinks=False)
            if status.st_ctime < started_at:
                listing[entry.path] = file_key(status)
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(listing))
    os.utime(draft, (started_at, started_at))  # its time is the attempt's beginning for those who read other stores
    draft.replace(path)
