"""Programs of ours stand back for their own ranks, while these run, and have their full weight again afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual_time import VirtualTime
from tests.worker.sessions import session_niceness
from tests.worker.started import started
from worker.node.attempt_files import SUPERVISOR_MODULE
from worker.node.processes import AUTOGROUP
from worker.node.standing_back import DASHBOARD_NICENESS, SHARE_OF_LOOKS, WORKER_NICENESS, RanksHere

ROOT = Path(__file__).parents[3]
OTHER, BATCH = os.SCHED_OTHER, os.SCHED_BATCH
LOOK = """
import ctypes, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from tests.virtual_time import VirtualTime
from tests.worker.sessions import session_niceness
from worker.node.standing_back import StandingBack

if os.getuid() == 0:  # as a user without rights
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: its files in /proc become that user's
standing = StandingBack(int(sys.argv[2]), interrupts=sys.argv[3] == "interrupts")
threading.Thread(target=threading.Event().wait, daemon=True).start()
for ranks_run in (False, True, True, False):
    deadline = time.monotonic() + 60
    while standing.stands_back != ranks_run and time.monotonic() < deadline:
        standing.follow(ranks_run=ranks_run)
        time.sleep(0.01)
    policies = {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}
    print(session_niceness(), *policies, os.nice(0))
"""


def looks(niceness: int, how: str, *, begins_session: bool = True) -> list[tuple[str, int]]:
    """Niceness of the session and policy of all threads of a program without rights: before, during and after ranks."""
    argv = [sys.executable, "-P", "-c", LOOK, str(ROOT), str(niceness), how]
    program = subprocess.run(argv, capture_output=True, text=True, timeout=300, start_new_session=begins_session)
    assert program.returncode == 0, program.stderr
    lines = [line.split() for line in program.stdout.splitlines()]
    assert {niceness for *_, niceness in lines} == {str(os.nice(0))}
    return [(session, int(policy)) for session, policy, _ in lines]


def session(niceness: int) -> str:
    return str(niceness) if AUTOGROUP.exists() else "0"


def test_a_dashboard_has_its_full_weight_but_while_ranks_run() -> None:
    full, less = (session(0), OTHER), (session(DASHBOARD_NICENESS), BATCH)
    assert looks(DASHBOARD_NICENESS, "waits") == [full, less, less, full]


def test_a_worker_passes_no_policy_on_to_its_ranks() -> None:
    full, less = (session(0), OTHER), (session(WORKER_NICENESS), OTHER)
    assert looks(WORKER_NICENESS, "interrupts") == [full, less, less, full]


def test_the_session_of_a_shell_stays_as_it_is() -> None:
    own = session_niceness()
    policies = [OTHER, BATCH, BATCH, OTHER]
    assert looks(DASHBOARD_NICENESS, "waits", begins_session=False) == [(own, policy) for policy in policies]


@pytest.fixture
def run_id() -> str:
    return uuid.uuid4().hex[:10]


@pytest.fixture
def supervisor(run_id: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program with a supervisor's command line."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = started([*sleep, "-m", SUPERVISOR_MODULE, "--data", str(tmp_path), "--attempt", f"{run_id}/1", "x"])
    yield process
    process.kill()
    process.wait()


def test_only_runs_of_ones_own_have_ranks_here(supervisor: subprocess.Popen[bytes], run_id: str) -> None:
    assert RanksHere().of_runs({"anothers", run_id})
    assert not RanksHere().of_runs({"anothers"})
    assert not RanksHere().of_runs(())


def test_ranks_are_here_until_their_supervisor_has_ended(supervisor: subprocess.Popen[bytes], run_id: str) -> None:
    ranks = RanksHere()
    assert ranks.of_runs({run_id})
    assert ranks.of_runs(()), "its end was reported, and it still runs"
    supervisor.kill()
    supervisor.wait()
    assert not ranks.of_runs({run_id}), "its worker was killed before it reported the end"


def test_looking_for_ranks_takes_a_small_part_of_a_core(supervisor: subprocess.Popen[bytes], run_id: str) -> None:
    time, used = VirtualTime(), iter(range(10))
    ranks = RanksHere(time, lambda: next(used))
    assert not ranks.of_runs({"anothers"}), "a look of one second"
    assert not ranks.of_runs({run_id}), "too soon"
    time.advance(1.0 / SHARE_OF_LOOKS)
    assert ranks.of_runs({run_id})
