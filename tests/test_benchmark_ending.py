"""A benchmark that is asked to end leaves nothing of what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.product import safely, wait_for

ROOT = Path(__file__).parent.parent
OWN = f"600.{os.getpid()}"
"""The seconds that processes of this test sleep, and those of no other test."""
PARENT = """
import signal, sys
from pathlib import Path
from benchmarks.ending import exit_when_asked, run_whole
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # what starts the tests may ignore them
exit_when_asked()
sys.exit(run_whole([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], Path.cwd()))
"""
MEASUREMENT = """
import subprocess, sys, time
from pathlib import Path
from benchmarks.ending import exit_when_asked
exit_when_asked()
out = Path(sys.argv[1])
try:
    subprocess.Popen(["sleep", sys.argv[2]], start_new_session=True)
    subprocess.run(["sh", "-c", f"setsid sleep {sys.argv[2]} & setsid sleep {sys.argv[2]} &"])  # orphans
    (out / "started").touch()
    if "and waits" in sys.argv:
        time.sleep(600)
finally:
    time.sleep(0.5)
    (out / "cleaned").touch()
"""


def started(command: list[str]) -> psutil.Popen:
    return psutil.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def left(process: psutil.Popen, ask: Callable[[], object]) -> list[psutil.Process]:
    """What lives of the process's family when it has ended."""
    family = process.children(recursive=True)
    ask()
    process.wait(300)
    return [each for each in family if safely(each.status, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_cleans_up_and_leaves_no_process(tmp_path: Path, number: int) -> None:
    process = started([sys.executable, "-c", PARENT, MEASUREMENT, str(tmp_path), OWN, "and waits"])
    wait_for((tmp_path / "started").exists, "the measurement")
    assert len(process.children(recursive=True)) == 4
    assert left(process, lambda: process.send_signal(number)) == []
    assert process.returncode == 128 + number and (tmp_path / "cleaned").exists()


def test_a_measurement_that_leaves_processes_is_cleaned_up_after(tmp_path: Path) -> None:
    process = started([sys.executable, "-c", PARENT, MEASUREMENT, str(tmp_path), OWN])
    assert process.wait(300) == 0 and (tmp_path / "cleaned").exists()
    assert [each for each in psutil.process_iter() if safely(each.cmdline, []) == ["sleep", OWN]] == []


@pytest.mark.real
@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_a_real_benchmark_ends_its_dashboard(number: int) -> None:
    process = started([sys.executable, "-m", "benchmarks", "--quick", "live_runs"])

    def serves() -> bool:
        return any("dashboard" in safely(each.cmdline, []) for each in process.children(recursive=True))

    wait_for(lambda: serves() or process.poll() is not None, "its dashboard")
    assert process.poll() is None, "it ended before it served"
    family = process.children(recursive=True)
    process.send_signal(number)
    process.wait(300)
    wait_for(lambda: not psutil.wait_procs(family, 0)[1], "every process to be gone")
