"""`rankzero up, dashboard`: start the programs of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.extras import require
from cli.server.code import named_interpreter
from cli.server.options import Data
from cli.terminal import CommandFailed
from domain.clients.addresses import data_directory
from worker.node.run_as import RunAs

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
TlsCert = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TLS certificate (PEM).",
        envvar="RANKZERO_TLS_CERT",
        show_default="plain HTTP",
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The certificate's key (PEM, not encrypted).",
        envvar="RANKZERO_TLS_KEY",
        show_default="in the certificate's file",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(min=1, help="Maximum CPU ranks running here at a time.", show_default="GPUs, or CPU cores"),
]

Python = Annotated[
    str | None,
    typer.Option(
        help="Python for runs that name none.",
        envvar="RANKZERO_PYTHON",
        show_default="Rankzero's own",
    ),
]

WarmStart = Annotated[
    bool,
    typer.Option(
        "--warm-start/--no-warm-start",
        help="Import torch ahead of the next launch, which then starts in a second or two.",
        envvar="RANKZERO_WARM_START",
    ),
]

RunAsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--run-as",
        metavar="[PERSON=]ACCOUNT",
        help="Account of this machine for trainings, of a person or everybody else; repeatable.",
        envvar="RANKZERO_RUN_AS",
        show_default="the worker's own",
    ),
]

KeepAttempts = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Remove folders of ended attempts after this time (7d), once the dashboard has all that it keeps of them.",
        envvar="RANKZERO_KEEP_ATTEMPTS",
        show_default="keep all",
    ),
]

NewStore = Annotated[
    bool,
    typer.Option("--new-store", help="Start with an empty store even though the one in this directory is missing."),
]


def up(
    host: Host = None,
    port: Port = None,
    data: Data = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    slots: Slots = None,
    python: Python = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Only the dashboard.")] = False,
    new_store: NewStore = False,
    demo: Annotated[bool, typer.Option("--demo", help="Launch a 2-process demo training.")] = False,
    nodes: Annotated[
        int, typer.Option("--nodes", min=1, max=16, help="Workers on this machine, to try a cluster with.")
    ] = 1,
    run_as: RunAsOption = None,
) -> None:
    """Start dashboard and worker on this machine; Ctrl-C ends the runs and stops everything.

    Raises CommandFailed for options that exclude each other, typer.Exit with the exit code."""
    require("up", "server", *([] if no_worker else ["worker"]))
    from cli.up import parent as parent

    if no_worker and (demo or nodes > 1):
        raise CommandFailed("--demo and --nodes need this machine's workers; remove --no-worker.", 2)
    if tls_key is not None and tls_cert is None:
        raise CommandFailed("--tls-key needs --tls-cert, the file of its certificate.", 2)
    if nodes > 1:
        slots = slots or max(1, _cores() // nodes)
    elif demo:
        slots = max(2, slots or _cores())
    plan = parent.Plan(
        data=data_directory(data),
        **_named(host=host, port=port, tls_cert=_absolute(tls_cert), tls_key=_absolute(tls_key)),
        slots=slots,
        has_worker=not no_worker,
        nodes=nodes,
        demo=demo,
        new_store=new_store,
        python=named_interpreter(python),
        run_as=accounts(run_as).entries,
    )
    raise typer.Exit(parent.run(plan))


def dashboard(
    host: Host = None,
    port: Port = None,
    data: Data = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    new_store: NewStore = False,
) -> None:
    """Start only the dashboard.

    Raises CommandFailed for unusable settings, typer.Exit with the exit code."""
    require("dashboard", "server")
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from dashboard.app.server import serve
    from dashboard.errors import describe
    from dashboard.settings import Settings
    from worker.node.standing_back import DashboardBesideRanks

    try:
        settings = Settings(**_named(host=host, port=port, data=data, tls_cert=tls_cert, tls_key=tls_key))
    except ValidationError as error:
        field, sentence = describe(error.errors())
        raise CommandFailed(f"RANKZERO_{str(field).upper()}: {sentence}", 2) from None
    except SettingsError as error:
        raise CommandFailed(f"A variable RANKZERO_… cannot be read: {error}", 2) from None
    raise typer.Exit(serve(settings, on_live_runs=DashboardBesideRanks().follow, new_store=new_store))


def _absolute(path: Path | None) -> Path | None:
    return path and path.expanduser().absolute()


def accounts(entries: list[str] | None) -> RunAs:
    """Read `--run-as`. Raises CommandFailed."""
    try:
        return RunAs.parse(entries or [])
    except ValueError as error:
        raise CommandFailed(str(error), 2) from None


def _cores() -> int:
    from worker.node.hardware import cores  # imports what only a worker needs

    return cores()


def _named(**options: Any) -> dict[str, Any]:
    """The options that were given a value; the others have their defaults elsewhere."""
    return {name: value for name, value in options.items() if value is not None}
