"""The worker's data directory where trainings run under accounts: a way through it, and nothing on that way to read."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from worker.agent.accounts.agent import ACCOUNTS
from worker.agent.accounts.agents import check
from worker.agent.accounts.messages import AgentSettings
from worker.node.run_as import Account, NoAccount, RunAs
from worker.session.options import CannotRun

WAYS = (ACCOUNTS, "nodes")
"""Folders on the way to those of accounts; `rankzero up --nodes` keeps several workers' data in `nodes`."""
CHECKED_AT_ONCE = 4


def usable(run_as: RunAs, data: Path, settings: AgentSettings) -> None:
    """Make sure that trainings can run under each account. Raises CannotRun."""
    names = run_as.accounts
    try:
        open_way(data)
        accounts = [Account.named(name) for name in names]
        for account in accounts:
            _give_folder(account, data)
        with ThreadPoolExecutor(CHECKED_AT_ONCE) as pool:
            list(pool.map(lambda account: check(account, data, settings, names), accounts))
    except NoAccount as error:
        raise CannotRun(str(error)) from error
    except OSError as error:
        raise CannotRun(f"The data of trainings under accounts cannot be kept in {data}: {error}.") from error


def open_way(data: Path) -> None:
    """Let others pass through the directory without seeing what is there, and close all else in it. Raises OSError."""
    for entry in [*data.iterdir()]:
        if entry.name not in WAYS:
            _close(entry)
    folder = data / ACCOUNTS
    folder.mkdir(exist_ok=True)
    # Without root each account makes its own folder here, and may not touch another's.
    folder.chmod(0o711 if os.getuid() == 0 else 0o1733)
    for way in (data, *(data / name for name in WAYS if name != ACCOUNTS)):
        with suppress(FileNotFoundError):
            way.chmod(stat.S_IMODE(way.stat().st_mode) & 0o700 | 0o711)


def _close(path: Path) -> None:
    """Take everybody's but the owner's rights away, where the worker may."""
    with suppress(OSError):
        status = path.lstat()
        if status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode):
            path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


def _give_folder(account: Account, data: Path) -> None:
    """Make the account's folder, as root. Raises OSError."""
    folder = data / ACCOUNTS / account.name
    if os.getuid() == 0 and not folder.exists():
        folder.mkdir(mode=0o700)
        os.chown(folder, account.uid, account.gid)
