"""The program that `rankzero watch` starts beside a command: `python -P -m cli.commands.anywhere.companion FOLDER`."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

from cli.extras import require
from cli.server.client import find_server
from cli.terminal import CommandFailed
from domain.clock import SYSTEM_CLOCK
from domain.masking.log_lines import log_to_stderr
from domain.network.trust import CA_FILE, CannotTrust
from worker.node.standing_back import WORKER_NICENESS, StandingBack
from worker.session.client import Client
from worker.session.options import CannotRun
from worker.watched.progress import ProgressFile

IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Schedulers and terminals send them to everything that they started."""


def main(arguments: list[str]) -> int:
    """Work for the command in this folder; returns 1 where something of it is left."""
    if len(arguments) != 1:
        print("usage: python -P -m cli.commands.anywhere.companion FOLDER", file=sys.stderr)
        return 2
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.nice(WORKER_NICENESS)
    StandingBack(WORKER_NICENESS, interrupts=True).follow(ranks_run=True)
    log_to_stderr(logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    return _work(Path(arguments[0]))


def _work(folder: Path) -> int:
    try:
        require("watch", "watch")
    except CommandFailed as error:
        ProgressFile(folder, SYSTEM_CLOCK).tell(state="refused", message=str(error))
        return 1
    from worker.watched.companion import Companion, lock

    try:
        descriptor = lock(folder)
        is_delivered = Companion(folder, connect).run()
    except BlockingIOError:
        return 0  # another one is at work
    except (OSError, ValueError) as error:
        print(f"rankzero: {error}", file=sys.stderr)
        return 1
    os.close(descriptor)
    return 0 if is_delivered else 1


def connect(token: str | None) -> Client:
    """Return a client of the dashboard that commands use, with this token or the person's. Raises CannotRun."""
    try:
        address = find_server(None)
        if address.ca_file is not None:
            os.environ[CA_FILE] = str(address.ca_file)
        return Client(address.url, token or address.token)
    except (CommandFailed, CannotTrust) as error:
        raise CannotRun(str(error)) from None


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # threads may still wait for an answer
