"""The worker with --run-as: who trains under which account, with which token, and what outlives whom."""

from __future__ import annotations

import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.assignments import DesiredCheck
from domain.messages import Reason
from tests import other_accounts
from tests.other_accounts import OtherAccount
from tests.worker.agent.accounts.accounts_worker import AccountsWorker
from tests.worker.http_server import HttpServer

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(other_accounts.obstacle()), reason=other_accounts.obstacle())]


@pytest.fixture
def server() -> Iterator[HttpServer]:
    running = HttpServer()
    yield running
    running.close()


@pytest.fixture
def worker(place: Path, open_python: Path, server: HttpServer) -> Iterator[AccountsWorker]:
    started = AccountsWorker(place, open_python, server)
    yield started
    started.clean_up()


def test_each_person_trains_under_their_account_and_strangers_are_refused(
    worker: AccountsWorker, ana: OtherAccount, bob: OtherAccount
) -> None:
    worker.start(f"ana={ana.name}", f"bob={bob.name}")
    of_ana, of_bob = worker.assign(1, "ana"), worker.assign(2, "bob")
    worker.assign(3, "eve")
    for assignment, account in ((of_ana, ana), (of_bob, bob)):
        work = worker.folder(assignment, account.name) / "work"
        worker.until((work / "ready").exists)
        assert (work / "uid").read_text() == str(account.uid)
        assert stat.S_IMODE(worker.folder(assignment, account.name).stat().st_mode) == 0o700
    (refused,) = worker.until(lambda: [report for fence, report in worker.server.store.reports if fence == 3][:1])
    assert (refused.state, refused.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert "has no account for the trainings of eve" in refused.message
    worker.let_end(of_ana, ana)
    worker.until(lambda: "succeeded" in worker.states(1) and "running" in worker.states(2))
    assert worker.server.bearers["1"] == {"token-of-1"} and worker.server.bearers["2"] == {"token-of-2"}
    assert worker.server.registered[0]["info"]["run_as"] == "accounts"


def test_whoever_has_no_account_of_their_own_gets_the_default(
    worker: AccountsWorker, ana: OtherAccount, bob: OtherAccount
) -> None:
    worker.start(f"ana={ana.name}", bob.name)
    assignment = worker.assign(1, "eve", "import os\nprint(os.environ.get('SOME_SECRET'), os.environ['HOME'])\n")
    worker.until(lambda: "succeeded" in worker.states(1))
    log = (worker.folder(assignment, bob.name) / "logs/rank0.out").read_text()
    assert log == f"None /home/{bob.name}\n"


def test_a_training_outlives_its_agent_and_its_worker(worker: AccountsWorker, ana: OtherAccount) -> None:
    program = worker.start(ana.name)
    assignment = worker.assign(1, "ana")
    worker.until(lambda: "running" in worker.states(1))
    (agent,) = worker.agents()
    agent.kill()
    worker.until(lambda: any(one.pid != agent.pid for one in worker.agents()))
    program.send_signal(signal.SIGTERM)
    assert program.wait(300) == 0
    worker.until(lambda: not worker.agents())
    worker.start(f"ana={ana.name}")
    worker.until(lambda: len(worker.server.registered) >= 2)
    (held,) = worker.server.registered[1]["held"]
    assert (held["run_id"], held["fence"]) == (assignment.run_id, 1)
    worker.let_end(assignment, ana)
    worker.until(lambda: "succeeded" in worker.states(1))


def test_a_run_is_stopped_with_its_grace_and_those_of_a_worker_that_ends(
    worker: AccountsWorker, ana: OtherAccount
) -> None:
    saving = "import signal, sys, time\n"
    saving += "signal.signal(signal.SIGTERM, lambda *_: (open('saved', 'w').close(), sys.exit(3)))\n"
    saving += "open('ready', 'w').close()\nwhile True: time.sleep(0.02)\n"
    worker.start(ana.name)
    assignment = worker.assign(1, "ana", saving)
    work = worker.folder(assignment, ana.name) / "work"
    worker.until((work / "ready").exists)
    worker.server.assignments = [assignment.model_copy(update={"action": "stop"})]
    worker.until(lambda: "stopped" in worker.states(1))
    assert (work / "saved").exists()


LYING = """
import ctypes, json, os, pathlib, time
PIDFD_GETFD = 438
held = {{"run_id": "{run}", "attempt": 1, "fence": {fence}, "uid": "u{fence}", "devices": ["cpu:0"]}}
lie = {{"seen": 10**6, "unsettled": [], "training": ["{run}/1"], "held": [held]}}
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if b"worker.agent.accounts.agent" in (folder / "cmdline").read_bytes():
            process = os.pidfd_open(int(folder.name))
            for number in map(int, os.listdir(folder / "fd")):
                taken = ctypes.CDLL(None).syscall(PIDFD_GETFD, process, number, 0)
                if taken >= 0 and number > 2 and os.readlink(f"/proc/self/fd/{{taken}}").startswith("pipe:"):
                    os.write(taken, (json.dumps({{"status": lie}}) + chr(10) + "no JSON" + chr(10)).encode())
                    pathlib.Path("told").touch()
    except OSError:
        pass
pathlib.Path("ready").touch()
while pathlib.Path("ready").exists(): time.sleep(0.02)
"""


def test_what_an_account_says_of_others_is_not_believed(
    worker: AccountsWorker, ana: OtherAccount, bob: OtherAccount
) -> None:
    worker.start(f"ana={ana.name}", f"bob={bob.name}")
    of_bob = worker.assign(1, "bob")
    worker.until(lambda: "running" in worker.states(1))
    of_ana = worker.assign(2, "ana", LYING.format(run=of_bob.run_id, fence=1))
    work = worker.folder(of_ana, ana.name) / "work"
    worker.until((work / "ready").exists)
    if not (work / "told").exists():
        pytest.skip("this kernel keeps processes of one account from each other")
    worker.until(lambda: "sent an unreadable message" in worker.log.read_text())
    loads = worker.server.loads
    worker.until(lambda: worker.server.loads > loads + 1)
    held = worker.server.last_load["held"]
    assert [one["fence"] for one in held if one["run_id"] == of_bob.run_id] == [1]
    assert worker.states(1) == ["starting", "running"]
    for assignment, account in ((of_bob, bob), (of_ana, ana)):
        worker.let_end(assignment, account)
    worker.until(lambda: "succeeded" in worker.states(1) and "succeeded" in worker.states(2))


def test_the_python_that_a_person_names_for_a_preflight_runs_under_their_account(
    worker: AccountsWorker, ana: OtherAccount
) -> None:
    named, told = worker.place / "python-of-ana", worker.place / "told"
    told.mkdir()
    told.chmod(0o777)
    named.write_text(f'#!/bin/sh\nid -u >> {told}/uids\nexec {worker.python} "$@"\n')
    named.chmod(0o755)
    worker.server.checks = [DesiredCheck(check_id=7, node_rank=0, stage=0, python=str(named), by="ana")]
    worker.start(f"ana={ana.name}")
    worker.until(lambda: worker.server.answered.get(7))
    facts = worker.server.answered[7]["facts"]
    assert facts["interpreter"]["python"] and facts["clock_offset_s"] is not None
    assert set((told / "uids").read_text().split()) == {str(ana.uid)}
    worker.server.checks = [DesiredCheck(check_id=8, node_rank=0, stage=0, python=str(named), by="eve")]
    worker.until(lambda: worker.server.answered.get(8))
    assert set((told / "uids").read_text().split()) == {str(ana.uid)}, "eve has no account, the worker runs its own"


@pytest.mark.parametrize(
    ("run_as", "sentence"),
    [
        ("nobody-of-this-name", "There is no account nobody-of-this-name on this machine"),
        ("root", "root is root's account, which isolates nothing"),
    ],
)
def test_an_account_that_cannot_be_used_is_said_at_once(worker: AccountsWorker, run_as: str, sentence: str) -> None:
    assert worker.start(run_as).wait(300) == 1
    assert sentence in worker.log.read_text()


@pytest.mark.skipif(other_accounts.is_open(Path(sys.executable)), reason="all accounts may execute this Python")
def test_an_installation_that_an_account_cannot_execute_is_said_at_once(
    worker: AccountsWorker, ana: OtherAccount
) -> None:
    assert worker.start(ana.name, python=sys.executable).wait(300) == 1
    assert f"{ana.name} cannot execute {sys.executable}: install Rankzero where" in worker.log.read_text()


def test_data_that_an_account_cannot_reach_is_said_at_once(worker: AccountsWorker, ana: OtherAccount) -> None:
    closed = worker.place / "closed"
    closed.mkdir(mode=0o700)
    worker.data = closed / "data"
    assert worker.start(ana.name).wait(300) == 1
    assert f"{ana.name} cannot use {worker.data}/accounts/{ana.name} (Permission denied)" in worker.log.read_text()
