"""`rankzero worker, gateway`: start the programs that join a dashboard."""

from __future__ import annotations

import getpass
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cli.commands.installation.programs import KeepAttempts, Python, RunAsOption, Slots, WarmStart, accounts
from cli.durations import seconds
from cli.extras import require
from cli.server.code import named_interpreter
from cli.server.options import Data, pairs
from cli.terminal import CommandFailed
from domain.clients.addresses import data_directory
from domain.launch.systemd_unit import unit
from domain.masking.log_lines import log_to_stderr, one_line
from domain.network.trust import CannotTrust
from worker.session.options import CannotRun, GatewayOptions, WorkerOptions

Server = Annotated[str | None, typer.Option(help="The dashboard's URL.", show_default=False)]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="File with the join token.", show_default="RANKZERO_TOKEN, or the data directory's"),
]


def worker(
    server: Server = None,
    name: Annotated[str | None, typer.Option(help="Name of this node.", show_default="its host name")] = None,
    slots: Slots = None,
    python: Python = None,
    data: Data = None,
    token_file: TokenFile = None,
    label: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Label of this node; repeatable.")] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Address at which other nodes reach this one.", show_default="as the dashboard does"),
    ] = None,
    stop_runs: Annotated[
        bool,
        typer.Option("--stop-runs", help="On SIGTERM end the runs instead of leaving them running."),
    ] = False,
    warm_start: WarmStart = True,
    run_as: RunAsOption = None,
    keep_attempts: KeepAttempts = None,
    print_unit: Annotated[
        bool,
        typer.Option("--print-unit", help="Print a systemd unit that starts this worker, and start nothing."),
    ] = False,
    only_attempt: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
) -> None:
    """Start a worker, one per node. The token comes from RANKZERO_TOKEN or a file, never from an argument."""
    options = WorkerOptions(
        server=_url(server, "as `rankzero up` prints it") if not print_unit else server or "",
        data=data_directory(data),
        name=name,
        python=named_interpreter(python),
        labels=pairs(label, "label"),
        token_file=token_file and token_file.expanduser().absolute(),
        slots=slots,
        address=address,
        stop_runs=stop_runs,
        warm_start=warm_start,
        run_as=accounts(run_as),
        keep_attempts_s=seconds(keep_attempts, "--keep-attempts") if keep_attempts else None,
        only_attempt=only_attempt,
    )
    if print_unit:
        print(unit(_command(options), getpass.getuser()), end="")
        return
    require("worker", "worker")
    from worker.agent.worker import Worker

    _run("worker", lambda: Worker(options).run())


def gateway(
    server: Server = None,
    name: Annotated[str | None, typer.Option(help="Name of this gateway.", show_default="its host name")] = None,
    python: Python = None,
    data: Data = None,
    job_data: Annotated[
        Path | None,
        typer.Option(
            help="Where jobs keep their data, as their nodes see it.", show_default="slurm in the data folder"
        ),
    ] = None,
    token_file: TokenFile = None,
    label: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Label of this cluster; repeatable.")] = None,
    poll: Annotated[float, typer.Option(min=0.1, metavar="S", help="Seconds between two queries of squeue.")] = 5,
) -> None:
    """Submit runs of pool slurm as Slurm jobs. Start it on a login node; its jobs outlive it."""
    options = GatewayOptions(
        server=_url(server, "as the compute nodes reach it"),
        data=data_directory(data),
        name=name,
        python=named_interpreter(python),
        labels=pairs(label, "label"),
        token_file=token_file,
        job_data=job_data,
        poll_s=poll,
    )
    require("gateway", "worker")
    from worker.slurm.gateway_program import GatewayProgram

    _run("gateway", lambda: GatewayProgram(options).run())


def _url(server: str | None, hint: str) -> str:
    url = server or os.environ.get("RANKZERO_URL")
    if not url:
        raise CommandFailed(f"--server is needed: the dashboard's URL, {hint}.", 2)
    return url


def _command(options: WorkerOptions) -> list[str]:
    """The command line of a worker with these options."""
    command = [str(Path(sys.executable).with_name("rankzero")), "worker"]
    values = {
        "--server": options.server or None,
        "--data": options.data,
        "--name": options.name,
        "--slots": options.slots,
        "--token-file": options.token_file,
        "--address": options.address,
        "--python": options.python,
        "--keep-attempts": None if options.keep_attempts_s is None else f"{options.keep_attempts_s:g}",
    }
    command += [part for flag, value in values.items() if value is not None for part in (flag, str(value))]
    command += [part for key, value in options.labels.items() for part in ("--label", f"{key}={value}")]
    command += [part for entry in options.run_as.entries for part in ("--run-as", entry)]
    command += ["--no-warm-start"] * (not options.warm_start)
    return command + ["--stop-runs"] * options.stop_runs


def _run(program: str, run: Callable[[], int]) -> NoReturn:
    """Run a program to its end, and exit without waiting for threads that still wait for an answer."""
    log_to_stderr(logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        code = run()
    except (CannotRun, CannotTrust) as error:
        print(f"rankzero {program}: {one_line(str(error))}", file=sys.stderr)
        code = 1
    logging.shutdown()
    os._exit(code)
