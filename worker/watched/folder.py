"""The folder of one watched command: what its front writes, and where its companion finds everything.

A data directory of its own, so that its companion is a worker with one attempt. Only the standard library is imported:
the front starts in a moment and stays as small as a supervisor.

    watch.json     what the front knows of the command (`Watched`), written before anything else
    attempt/       the attempt's directory (docs/RUN-DIRECTORY.md)
    registration.json  the server's answer, once it has given the command a place
    runs/RUN/attempts/N/nodeK -> attempt/   the place that the server gave, for the worker's own code
    companion.lock, companion.log
"""

from __future__ import annotations

import json
import secrets
import string
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

WATCH_FILE = "watch.json"
REGISTRATION_FILE = "registration.json"
COMPANION_LOCK = "companion.lock"
COMPANION_LOG = "companion.log"
ATTEMPT = "attempt"
LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class Watched:
    """A watched command, as its front describes it; the fields are those of `domain.watching.messages.WatchRequest`."""

    watch_id: str
    run_id: str
    argv: list[str]
    cwd: str
    host: str
    account: str
    pid: int
    started_at: float
    name: str = ""
    project: str = "default"
    tags: list[str] = field(default_factory=list)
    key: str | None = None
    is_lasting: bool = False
    process: int | None = None
    processes: int | None = None
    ranks_here: int | None = None
    world_size: int | None = None
    scheduler: str | None = None
    python: str | None = None
    look_only: bool = False
    stop_grace_s: float = 30.0


def new_id() -> str:
    """Return an id of ten letters and digits, as runs have them."""
    return "".join(secrets.choice(LETTERS) for _ in range(10))


def all_folders(data: Path) -> list[Path]:
    """Return the folders of all watched commands below a data directory, the oldest first."""
    made = dict[Path, float]()
    for path in (data / "watched").glob("*"):
        with suppress(OSError):  # it is delivered and gone, or is none
            made[path] = (path / WATCH_FILE).stat().st_mtime
    return sorted(made, key=made.__getitem__)


def folder_of(data: Path, watched: Watched) -> Path:
    """Return the path of a command's folder."""
    return data / "watched" / watched.watch_id


def make(data: Path, watched: Watched) -> Path:
    """Make the folder of a command and its attempt's directory. Raises OSError."""
    folder = folder_of(data, watched)
    folder.mkdir(parents=True, mode=0o700)
    (folder / ATTEMPT / "logs").mkdir(parents=True)
    draft = folder / f".{WATCH_FILE}"
    draft.write_text(json.dumps(asdict(watched)))
    draft.replace(folder / WATCH_FILE)
    return folder


def read(folder: Path) -> Watched:
    """Return what the front wrote. Raises OSError, ValueError."""
    try:
        return Watched(**json.loads((folder / WATCH_FILE).read_text()))
    except TypeError as error:  # a field of another version
        raise ValueError(f"{folder / WATCH_FILE} is of another version: {error}") from None
