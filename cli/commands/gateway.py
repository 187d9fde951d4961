"""`rankzero gateway`: runs of pool slurm become jobs of the cluster whose login node it is started on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.programs import Python
from cli.server.client import default_data
from cli.server.interpreter import named
from cli.server.options import Data
from cli.terminal.errors import CommandFailed


def gateway(
    server: Annotated[str | None, typer.Option(help="The dashboard's URL.", show_default=False)] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of this gateway.", show_default="its host name")
    ] = None,
    python: Python = None,
    data: Data = None,
    job_data: Annotated[
        Path | None,
        typer.Option(
            help="Where jobs keep their data, as their nodes see it.", show_default="slurm in the data folder"
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the join token.", show_default="RANKZERO_TOKEN, or the data directory's"
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Label of this cluster; repeatable.")
    ] = None,
    poll: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="S", help="Seconds between two queries of squeue.", show_default="5"),
    ] = None,
) -> None:
    """Submit runs of pool slurm as Slurm jobs. Start it on a login node; its jobs outlive it.

    Raises CommandFailed without a dashboard's URL."""
    url = server or os.environ.get("RANKZERO_URL")
    if not url:
        raise CommandFailed("--server is needed: the dashboard's URL, as the compute nodes reach it.", 2)
    options = ["--server", url, "--data", str(data.expanduser().absolute() if data else default_data())]
    named_options = {"--name": name, "--token-file": token_file, "--job-data": job_data, "--poll": poll}
    named_options["--python"] = named(python)
    options += [
        part for flag, value in named_options.items() if value is not None for part in (flag, str(value))
    ]
    options += [part for pair in label or [] for part in ("--label", pair)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "worker.slurm", *options])
