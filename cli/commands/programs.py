"""`rankzero up, dashboard, worker`: start the long-running programs."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.server.client import default_data
from cli.server.interpreter import named
from cli.server.options import Data
from cli.terminal.errors import CommandFailed
from domain.launch.systemd_unit import unit

Host = Annotated[
    str | None,
    typer.Option(
        help="Address to listen on; 0.0.0.0 is reachable from other machines.",
        envvar="RANKZERO_HOST",
        show_default="127.0.0.1",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port to listen on; 0 takes a free one.",
        envvar="RANKZERO_PORT",
        show_default="8765",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(min=1, help="CPU ranks that may run at once here.", show_default="GPUs, or CPU cores"),
]

Python = Annotated[
    str | None,
    typer.Option(
        help="Python for runs that name none.",
        envvar="RANKZERO_PYTHON",
        show_default="Rankzero's own",
    ),
]

NewStore = Annotated[
    bool,
    typer.Option(
        "--new-store", help="Start with an empty store although the one of this directory is missing."
    ),
]


def up(
    host: Host = None,
    port: Port = None,
    data: Data = None,
    slots: Slots = None,
    python: Python = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Only the dashboard.")] = False,
    new_store: NewStore = False,
    demo: Annotated[bool, typer.Option("--demo", help="Launch a 2-process training to look at.")] = False,
) -> None:
    """Start dashboard and worker on this machine; Ctrl-C ends the runs and stops everything.

    Raises CommandFailed for options that exclude each other, typer.Exit with the exit code."""
    from cli.up import parent as parent

    if no_worker and demo:
        raise CommandFailed("--demo trains on this machine's worker; remove --no-worker.", 2)
    plan = parent.Plan(
        data=data.expanduser().absolute() if data else default_data(),
        host=host or "127.0.0.1",
        port=8765 if port is None else port,
        slots=max(2, slots or os.cpu_count() or 1) if demo else slots,
        has_worker=not no_worker,
        demo=demo,
        new_store=new_store,
        python=named(python),
    )
    raise typer.Exit(parent.run(plan))


def dashboard(host: Host = None, port: Port = None, data: Data = None, new_store: NewStore = False) -> None:
    """Start only the dashboard.

    Raises CommandFailed for unusable settings, typer.Exit with the exit code."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from dashboard.app.server import serve
    from dashboard.errors import describe
    from dashboard.settings import Settings

    options: dict[str, Any] = {"host": host, "port": port, "data": data}
    try:
        settings = Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        field, sentence = describe(error.errors())
        raise CommandFailed(f"RANKZERO_{str(field).upper()}: {sentence}", 2) from None
    except SettingsError as error:
        raise CommandFailed(f"A variable RANKZERO_… cannot be read: {error}", 2) from None
    raise typer.Exit(serve(settings, new_store=new_store))


def worker(
    context: typer.Context,
    server: Annotated[str | None, typer.Option(help="The dashboard's URL.", show_default=False)] = None,
    name: Annotated[str | None, typer.Option(help="Name of this node.", show_default="its host name")] = None,
    slots: Slots = None,
    python: Python = None,
    data: Data = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the join token.", show_default="RANKZERO_TOKEN, or the data directory's"
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Label of this node; repeatable.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Address at which other nodes reach this one.", show_default="as the dashboard does"
        ),
    ] = None,
    stop_runs: Annotated[
        bool,
        typer.Option("--stop-runs", help="On SIGTERM end the runs instead of leaving them running."),
    ] = False,
    print_unit: Annotated[
        bool,
        typer.Option("--print-unit", help="Print a systemd unit that starts this worker, and start nothing."),
    ] = False,
) -> None:
    """Start a worker, one per node. The token comes from RANKZERO_TOKEN or a file, never from an argument.

    Raises CommandFailed without a dashboard's URL."""
    url = server or os.environ.get("RANKZERO_URL")
    if not (url or print_unit):
        raise CommandFailed("--server is needed: the dashboard's URL, as `rankzero up` prints it.", 2)
    folder = str(data.expanduser().absolute() if data else default_data())
    token = token_file and str(token_file.expanduser().absolute())
    named_options = {"--name": name, "--slots": slots, "--token-file": token, "--address": address}
    named_options["--python"] = named(python)
    options = [
        part for flag, value in named_options.items() if value is not None for part in (flag, str(value))
    ]
    options += [part for pair in label or [] for part in ("--label", pair)]
    options += ["--stop-runs"] if stop_runs else []
    options += context.args
    if print_unit:
        server_options = ["--server", server] if server else []
        executable = str(Path(sys.executable).with_name("rankzero"))
        print(
            unit([executable, "worker", *server_options, "--data", folder, *options], getpass.getuser()),
            end="",
        )
        return
    sys.stdout.flush()
    program = [sys.executable, "-P", "-m", "worker", "--server", str(url), "--data", folder]
    os.execv(sys.executable, [*program, *options])
