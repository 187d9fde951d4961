"""A worker that is not root: it becomes other accounts through sudo, or says what sudo must allow."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import other_accounts
from tests.other_accounts import OtherAccount
from tests.worker.agent.accounts.accounts_worker import AccountsWorker
from tests.worker.http_server import HttpServer

OBSTACLE = other_accounts.obstacle() or ("" if shutil.which("sudo") else "there is no sudo")
pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)]

PEEKING = """
import json, os, pathlib
def outcome(path):
    try:
        return len(pathlib.Path(path).read_bytes())
    except OSError as error:
        return type(error).__name__
pathlib.Path("seen").write_text(json.dumps([os.getuid(), *map(outcome, {paths!r})]))
"""


@pytest.fixture
def worker(place: Path, open_python: Path) -> Iterator[AccountsWorker]:
    with ExitStack() as stack:
        server = HttpServer()
        stack.callback(server.close)
        started = AccountsWorker(place, open_python, server)
        stack.callback(started.clean_up)
        yield started


@pytest.fixture
def rules() -> Iterator[Path]:
    """A file of sudo's rules, gone afterwards."""
    path = Path(f"/etc/sudoers.d/rankzero-test-{os.getpid()}")
    yield path
    path.unlink(missing_ok=True)


def test_a_worker_that_is_not_root_says_the_rule_that_it_needs_and_works_with_it(
    worker: AccountsWorker, rules: Path, ana: OtherAccount, bob: OtherAccount
) -> None:
    worker.data.mkdir(mode=0o700)
    os.chown(worker.data, bob.uid, bob.gid)
    become = ["setpriv", f"--reuid={bob.uid}", f"--regid={bob.gid}", "--init-groups", "--"]
    assert worker.start(f"ana={ana.name}", become=become).wait(300) == 1
    rule = re.search(r"Add to /etc/sudoers.d/rankzero: (.*)", worker.log.read_text())
    assert rule is not None, worker.log.read_text()
    rules.write_text(rule[1] + "\n")
    rules.chmod(0o440)

    program = worker.start(f"ana={ana.name}", become=become)
    waiting = worker.assign(1, "ana")
    worker.until(lambda: "running" in worker.states(1) and (worker.folder(waiting, ana.name) / "work/ready").exists())
    assert (worker.folder(waiting, ana.name) / "work/uid").read_text() == str(ana.uid)
    secret = [str(worker.data / "node/node.json"), f"/proc/{program.pid}/environ"]
    peeking = worker.assign(2, "ana", PEEKING.replace("{paths!r}", repr(secret)))
    worker.until(lambda: "succeeded" in worker.states(2))
    seen = (worker.folder(peeking, ana.name) / "work/seen").read_text()
    assert seen == f'[{ana.uid}, "PermissionError", "PermissionError"]'

    program.send_signal(signal.SIGTERM)  # the training goes on, and the next worker finds it
    assert program.wait(300) == 0
    worker.start(f"ana={ana.name}", become=become)
    worker.until(lambda: len(worker.server.registered) >= 2)
    worker.server.assignments = [waiting.model_copy(update={"action": "stop"})]
    worker.until(lambda: "stopped" in worker.states(1))
