"""Copy runs into W&B, by its own package: an ended one at once, one that trains as it goes; each row once."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cli.mirrors.copying import Curves, Mirrored, ReceiverAway, curves, hyperparameters
from cli.server.client import ServerClient
from cli.server.following import is_complete
from cli.server.options import run_path
from cli.terminal import CommandFailed
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
        journal, is_ended = self._journal(run_id, project), is_complete(run)
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
        if is_ended := is_complete(run):
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


# One run at W&B that a mirror writes, by W&B's own package.

EXIT_CODES = {"succeeded": 0, "failed": 1, "stopped": 255}
FOLLOWED = "rankzero_followed"
"""In the config of a copy that was made while the run trained: its rows are those of a journal."""


class WandbCopy:
    """An open run; row n has W&B's step n, so that W&B's number of rows says which are there."""

    def __init__(self, entity: str, project: str, run: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Open the run with the id, name and tags of ours. Raises ReceiverAway, CommandFailed."""
        wandb = _package()
        # Of this machine nothing is told: the run was not here.
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_meta=True, x_disable_stats=True,
            x_disable_machine_info=True, x_save_requirements=False, reinit="create_new",
        )  # fmt: skip
        self._id = run["id"]
        try:
            self._copy = wandb.init(
                entity=entity, project=project, id=run["id"], name=run["name"], config=dict(params),
                tags=list(run["tags"]), resume="allow", settings=quiet,
            )  # fmt: skip
        except wandb.Error as error:
            raise ReceiverAway(f"W&B did not take run {run['id']}: {error}.") from None
        self._rows = self._had = int(self._copy.starting_step)  # `step` is 0 until the first row
        self._copy.define_metric("*", step_metric=STEP)

    @property
    def url(self) -> str:
        """Its page; "" offline."""
        return self._copy.url or ""

    def require_rows_of(self, row_count: int, followed: bool) -> None:
        """Raises CommandFailed where W&B has rows whose points are unknown here."""
        is_other = self._had and self._copy.config.get(FOLLOWED, False) is not followed
        if self._had > row_count or is_other:
            self._copy.finish(EXIT_CODES["stopped"])
            raise CommandFailed(
                f"W&B has {self._had} rows of run {self._id} that another mirror wrote. Continue that one, on its "
                "machine and with its WANDB_DIR; or delete the copy at W&B and run this again."
            )

    def log(self, rows: Sequence[Row]) -> int:
        """Log those of all rows that W&B lacks; return the number of their points. Raises CommandFailed."""
        return self.log_more(rows[self._rows :])

    def log_more(self, rows: Sequence[Row]) -> int:
        """Log the next rows; return the number of their points. Raises CommandFailed."""
        try:
            for row in rows:
                self._copy.log(row, step=self._rows, commit=True)
                self._rows += 1
        except OSError as error:
            raise CommandFailed(f"W&B's service ended ({error}). Run the same command again to continue.") from None
        return values_in(rows)

    def finish(self, exit_code: int) -> None:
        """Upload what is left and end the run."""
        self._copy.finish(exit_code)


def is_offline() -> bool:
    """Whether the package is set to write files instead of uploading. Raises CommandFailed without the package."""
    return str(_package().setup().settings.mode) != "online"


def _package() -> Any:
    try:
        import wandb
    except ImportError:
        raise CommandFailed("wandb is not installed beside the command: pip install 'rankzero[wandb]'.") from None
    return wandb


# What a mirror has copied into W&B while a run trained: a file that says which points are in which rows.
#
# W&B numbers rows and says how many it has, but not what is in them, and points of one step come at different times. So
# each batch of points is written down before its rows are logged; after a kill the same rows are made of it again.

Counts = dict[str, int]
"""Series -> number of its points."""


class Batch(NamedTuple):
    """The points of an attempt that were copied together: those up to these numbers, without the earlier batches'."""

    attempt: int
    until: Counts


class Journal:
    """The batches of one copy, oldest first; one program at a time holds it."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises CommandFailed where another program has it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise CommandFailed(f"Another command mirrors this run already; it holds {path}.") from None
        self._have: dict[int, Counts] = {}

    def close(self) -> None:
        """Let others have the file."""
        self._file.close()

    def rows(self, curves: Callable[[int], Curves]) -> Iterator[Row]:
        """Yield the rows of all batches again, from the points of each attempt."""
        self._have, logged = {}, dict[int, Curves]()
        for batch in self._batches():
            if batch.attempt not in logged:
                logged[batch.attempt] = curves(batch.attempt)
            yield from self._rows(batch, logged[batch.attempt])

    def add(self, attempt: int, logged: Curves) -> list[Row]:
        """Write down the points that no batch has, on the disk, and return their rows."""
        have = self._have.get(attempt, {})
        until = {name: len(points) for name, points in logged.items() if len(points) > have.get(name, 0)}
        if not until:
            return []
        self._file.write(json.dumps([attempt, until]).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._rows(Batch(attempt, until), logged)

    def _rows(self, batch: Batch, logged: Curves) -> list[Row]:
        have = self._have.setdefault(batch.attempt, {})
        new = {name: logged[name][have.get(name, 0) : count] for name, count in batch.until.items()}
        have.update(batch.until)
        return list(rows_of(new))

    def _batches(self) -> list[Batch]:
        """Read the file; a last line that was cut off was logged nowhere, and goes."""
        self._file.seek(0)
        whole = self._file.read()
        whole = whole[: whole.rfind(b"\n") + 1]
        self._file.truncate(len(whole))
        return [Batch(*json.loads(line)) for line in whole.splitlines()]


# Points as rows of W&B: the values of one step and time together.

STEP = "step"
"""The x-axis of all series; W&B's own step is the number of the row."""
TIME = "_timestamp"
Row = dict[str, Any]


def rows_of(logged: Mapping[str, Sequence[Sequence[Any]]]) -> Iterator[Row]:
    """Yield the rows of these points by their steps: the values of one step, and further ones where a step has two."""
    by_step: dict[int, list[Row]] = {}
    for name, points in logged.items():
        for step, value, wall in points:
            rows = by_step.setdefault(step, [])
            row = next((row for row in rows if name not in row and row[TIME] == wall), None)
            if row is None:
                rows.append(row := {STEP: step, TIME: wall})
            row[name] = float(value)
    for step in sorted(by_step):
        yield from sorted(by_step[step], key=lambda row: float(row[TIME]))


def values_in(rows: Sequence[Row]) -> int:
    """Return the number of points in the rows."""
    return sum(len(row.keys() - {STEP, TIME}) for row in rows)
