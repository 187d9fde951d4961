"""Copy runs into W&B, by its own package: an ended one at once, one that trains as it goes; each row once."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cli.mirrors.copying import Mirrored, curves, hyperparameters
from cli.mirrors.wandb_copy import EXIT_CODES, FOLLOWED, WandbCopy, is_offline
from cli.mirrors.wandb_journal import Journal
from cli.mirrors.wandb_rows import rows_of
from cli.server.client import ServerClient
from cli.server.options import run_path
from cli.terminal.errors import CommandFailed
from domain.messages import TERMINAL_STATES
from worker.loggers.wandb import records

SCHEME = "wandb"


class Wandb:
    """A project at W&B; credentials, server and mode are those of the package: WANDB_API_KEY, WANDB_MODE, …"""

    def __init__(self, url: str, follows: bool = False) -> None:
        """`url` is wandb://ENTITY or wandb://ENTITY/PROJECT; `follows`: also runs that train are copied.

        Raises CommandFailed."""
        parts = urlsplit(url)
        if parts.scheme != SCHEME or not parts.netloc or "@" in parts.netloc or parts.path.count("/") > 1:
            raise CommandFailed("--to must be wandb://ENTITY/PROJECT, without a key: W&B takes WANDB_API_KEY.", 2)
        self._entity, self._project, self._follows = parts.netloc, parts.path.strip("/") or None, follows
        self._followed: dict[str, _Followed] = {}

    def mirror(self, server: ServerClient, run_id: str, experiment: str | None) -> Mirrored:
        """Copy what the copy lacks; a run that still trains only with follow, online. Raises CommandFailed."""
        run = server.get(run_path(run_id))
        project = self._project or experiment or run["project"]
        journal, is_ended = self._journal(run_id, project), run["state"] in TERMINAL_STATES
        if journal.exists() if is_ended else self._follows and not is_offline():
            return self._follow(server, run, project, journal)
        if not is_ended:
            return Mirrored(run_id, "", 0, is_ended=False)
        rows = [row for attempt in _attempts(run) for row in rows_of(curves(server, run_id, attempt))]
        if rows and _written_offline(run_id) >= len(rows):
            return Mirrored(run_id, str(_folder()), 0, is_ended=True)
        copy = WandbCopy(self._entity, project, run, hyperparameters(server, run))
        copy.require_rows_of(len(rows), followed=False)
        sent = copy.log(rows)
        copy.finish(EXIT_CODES[run["state"]])
        return Mirrored(run_id, copy.url or str(_folder()), sent, is_ended=True)

    def _follow(self, server: ServerClient, run: Mapping[str, Any], project: str, path: Path) -> Mirrored:
        """Copy what came since the last time, and the end."""
        if (followed := self._followed.get(run["id"])) is None:
            followed = _Followed(server, run, self._entity, project, path)
            self._followed[run["id"]] = followed
        return followed.go_on(server, run)

    def _journal(self, run_id: str, project: str) -> Path:
        target = zlib.crc32(f"{self._entity}/{project}".encode())
        return _folder() / f"rankzero-mirror-{run_id}-{target:08x}.jsonl"


class _Followed:
    """A run whose copy stays open while it trains."""

    def __init__(self, server: ServerClient, run: Mapping[str, Any], entity: str, project: str, path: Path) -> None:
        """Open the copy, and log what an earlier command was stopped in. Raises CommandFailed."""
        self._journal = Journal(path)
        try:
            rows = list(self._journal.rows(lambda attempt: curves(server, run["id"], attempt)))
            self._copy = WandbCopy(entity, project, run, hyperparameters(server, run) | {FOLLOWED: True})
            self._copy.require_rows_of(len(rows), followed=True)
            self._sent = self._copy.log(rows)
        except BaseException:
            self._journal.close()
            raise

    def go_on(self, server: ServerClient, run: Mapping[str, Any]) -> Mirrored:
        """Copy what came since the last time, and the end. Raises CommandFailed."""
        for attempt in _attempts(run):
            self._sent += self._copy.log_more(self._journal.add(attempt, curves(server, run["id"], attempt)))
        sent, self._sent = self._sent, 0
        if is_ended := run["state"] in TERMINAL_STATES:
            self._copy.finish(EXIT_CODES[run["state"]])
            self._journal.close()
        return Mirrored(run["id"], self._copy.url, sent, is_ended)


def _folder() -> Path:
    """Where W&B's package keeps the files of runs."""
    return Path(os.environ.get("WANDB_DIR") or ".").absolute() / "wandb"


def _written_offline(run_id: str) -> int:
    """Number of rows in the files that a mirror wrote offline, of which one is whole or none."""
    files = _folder().glob(f"offline-run-*-{run_id}/run-{run_id}.wandb")
    return max((sum(record.HasField("history") for _, record in records(file)) for file in files), default=0)


def _attempts(run: Mapping[str, Any]) -> range:
    return range(1, (run["attempt"] or 0) + 1)
