"""`rankzero mirror`: copy what runs logged into a team's MLflow or W&B."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from cli.mirrors.copying import Mirrored, ReceiverAway
from cli.mirrors.mlflow import Mlflow
from cli.mirrors.mlflow import mirror as to_mlflow
from cli.mirrors.wandb import SCHEME, Wandb
from cli.server.client import ServerClient, ServerUnreachable
from cli.server.options import Data, Json, RunIds, server_at
from cli.terminal import CommandFailed, print_json, say, warn
from domain.text.formats import plural

EVERY_S = 5.0
REST = 19
"""Times as long as a copy takes, it rests: a long run is read again and again."""
LONGEST_WAIT_S = 60.0


def mirror(
    runs: RunIds,
    to: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Address of an MLflow tracking server, or wandb://ENTITY/PROJECT.",
            show_default=False,
        ),
    ],
    experiment: Annotated[
        str | None,
        typer.Option(help="MLflow's experiment, or W&B's project.", show_default="the run's project"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the runs end.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Copy what runs logged into MLflow or W&B; run again, it continues where it stopped.

    Credentials: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; those of wandb."""
    copied, points = _copy_all(partial(_copy_to(to, follow), server_at(data)), runs, experiment, follow)
    if as_json:
        print_json([asdict(copied[run_id]) | {"points": points[run_id]} for run_id in runs])
    else:
        for run_id in runs:
            say(f"{run_id}: {_outcome(copied[run_id], points[run_id])}")


def _copy_to(url: str, follow: bool) -> Callable[[ServerClient, str, str | None], Mirrored]:
    """Return the copier of runs to an address. Raises CommandFailed."""
    return Wandb(url, follow).mirror if url.startswith(f"{SCHEME}:") else partial(to_mlflow, Mlflow(url))


def _outcome(copied: Mirrored, points: int) -> str:
    if not copied.url:
        return "W&B gets it when it has ended, or while it trains with --follow"
    return f"{plural(points, 'point')} copied to {copied.url}"


def _copy_all(
    copy: Callable[[str, str | None], Mirrored], runs: Sequence[str], experiment: str | None, follow: bool
) -> tuple[dict[str, Mirrored], Counter[str]]:
    """Copy runs until each has ended, or once; return each run's state there and the number of points copied.

    Raises CommandFailed where the receiver or the dashboard is away and nothing is followed."""
    copied, points = dict[str, Mirrored](), Counter[str]()
    waiting, wait_s = list(runs), 1.0
    while waiting:
        began = time.monotonic()
        try:
            for run_id in tuple(waiting):
                copied[run_id] = copy(run_id, experiment)
                points[run_id] += copied[run_id].points
                if copied[run_id].is_ended or not follow:
                    waiting.remove(run_id)
            wait_s = 1.0
            time.sleep(max(EVERY_S, REST * (time.monotonic() - began)) if waiting else 0)
        except (ReceiverAway, ServerUnreachable) as error:
            if not follow:
                raise CommandFailed(f"{error} Run the same command again to continue.") from None
            warn(f"{error} Trying again in {wait_s:.0f} s.")
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
    return copied, points
