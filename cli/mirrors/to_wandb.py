"""Copy a run that has ended into W&B, by its own package: the same rows in the same order each time, each once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cli.mirrors.copying import Mirrored, ReceiverAway, curves, hyperparameters
from cli.server.client import ServerClient
from cli.server.options import run_path
from cli.terminal.errors import CommandFailed
from domain.messages import TERMINAL_STATES
from worker.loggers.wandb_records import records

if TYPE_CHECKING:
    from wandb import Run

SCHEME = "wandb"
STEP = "step"
"""The x-axis of all series; W&B's own step is the number of the row."""
TIME = "_timestamp"
EXIT_CODES = {"succeeded": 0, "failed": 1, "stopped": 255}

Row = dict[str, Any]


class Wandb:
    """A project at W&B; credentials, server and mode are those of the package: WANDB_API_KEY, WANDB_MODE, …"""

    def __init__(self, url: str) -> None:
        """`url` is wandb://ENTITY or wandb://ENTITY/PROJECT. Raises CommandFailed."""
        parts = urlsplit(url)
        if parts.scheme != SCHEME or not parts.netloc or "@" in parts.netloc or parts.path.count("/") > 1:
            raise CommandFailed(
                "--to must be wandb://ENTITY/PROJECT, without a key: W&B takes WANDB_API_KEY.", 2
            )
        self._entity, self._project = parts.netloc, parts.path.strip("/") or None

    def mirror(self, server: ServerClient, run_id: str, experiment: str | None) -> Mirrored:
        """Copy what the copy lacks of a run that has ended; nothing of others. Raises CommandFailed."""
        run = server.get(run_path(run_id))
        if run["state"] not in TERMINAL_STATES:
            return Mirrored(run_id, "", 0, is_ended=False)
        rows = [
            row
            for number in range(1, (run["attempt"] or 0) + 1)
            for row in rows_of(curves(server, run_id, number))
        ]
        if rows and _written_offline(run_id) >= len(rows):
            return Mirrored(run_id, str(_folder()), 0, is_ended=True)
        return self._send(
            run, rows, hyperparameters(server, run), self._project or experiment or run["project"]
        )

    def _send(
        self, run: Mapping[str, Any], rows: Sequence[Row], params: Mapping[str, Any], project: str
    ) -> Mirrored:
        wandb = _package()
        # Of this machine nothing is told: the run was not here.
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_meta=True, x_disable_stats=True,
            x_disable_machine_info=True, x_save_requirements=False,
        )  # fmt: skip
        try:
            copy = wandb.init(
                entity=self._entity, project=project, id=run["id"], name=run["name"], config=dict(params),
                tags=list(run["tags"]), resume="allow", settings=quiet,
            )  # fmt: skip
            have = copy.step
            _log(copy, rows[have:], have)
            copy.finish(EXIT_CODES[run["state"]])
        except wandb.Error as error:
            raise ReceiverAway(f"W&B did not take run {run['id']}: {error}.") from None
        sent = sum(len(row.keys() - {STEP, TIME}) for row in rows[have:])
        return Mirrored(run["id"], copy.url or str(_folder()), sent, is_ended=True)


def rows_of(logged: Mapping[str, Sequence[Sequence[Any]]]) -> Iterator[Row]:
    """Yield the rows of an attempt by their steps: the values of one step, and further ones where a step has two."""
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


def _log(copy: Run, rows: Sequence[Row], first: int) -> None:
    copy.define_metric("*", step_metric=STEP)
    for number, row in enumerate(rows, first):
        copy.log(row, step=number)


def _folder() -> Path:
    """Where W&B's package keeps the files of runs."""
    return Path(os.environ.get("WANDB_DIR") or ".").absolute() / "wandb"


def _written_offline(run_id: str) -> int:
    """Number of rows in the files that a mirror wrote offline, of which one is whole or none."""
    files = _folder().glob(f"offline-run-*-{run_id}/run-{run_id}.wandb")
    return max((sum(record.HasField("history") for _, record in records(file)) for file in files), default=0)


def _package() -> Any:
    try:
        import wandb
    except ImportError:
        raise CommandFailed(
            "wandb is not installed beside the command: pip install 'rankzero[wandb]'."
        ) from None
    return wandb
