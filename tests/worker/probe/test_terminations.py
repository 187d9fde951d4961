"""SIGTERM is noted ahead of the script's own handler, and the script sees no difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROBE = Path(__file__).parents[3] / "worker" / "probe"
SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from rankzero_probe import process_state, recorder

def before(number, frame): print("before", number)
def after(number, frame): print("after", number)

signal.signal(signal.SIGTERM, before)
recorder.hook_into_signals()
assert signal.getsignal(signal.SIGTERM) is before
os.kill(os.getpid(), signal.SIGTERM)
assert signal.signal(signal.SIGTERM, after) is before
os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGUSR1, before)
os.kill(os.getpid(), signal.SIGUSR1)
print([event["kind"] for event in process_state.current.events])
signal.signal(signal.SIGTERM, signal.SIG_DFL)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""


def test_sigterm_is_noted_and_the_scripts_handlers_stay_its_own() -> None:
    command = [sys.executable, "-c", SCRIPT, str(PROBE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["before 15", "after 15", "before 10", "['terminated', 'terminated']"]
