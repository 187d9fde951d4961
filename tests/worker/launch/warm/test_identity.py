"""What /proc shows of a forked process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

FOLDER = Path(__file__).parents[4] / "worker" / "warm"
FORGETTING = f"""
import gc, sys
sys.path.insert(0, {str(FOLDER)!r})
from rankzero_warm import identity
identity.show(sys.argv[1:], {{"RANKZERO_RUN_ID": "a" * 2000}})
for name in [name for name in sys.modules if name.startswith("rankzero_warm")]:  # as before a script begins
    del sys.modules[name]
del identity
gc.collect()
taken = [b"\\xff" * size for size in range(1000, 8000)]
for name in ("cmdline", "environ"):
    sys.stdout.buffer.write(open("/proc/self/" + name, "rb").read())
"""


def test_command_and_environment_stay_when_the_script_has_forgotten_who_showed_them():
    argv = ["python", "-u", "train.py", "x" * 2000]
    ended = subprocess.run([sys.executable, "-c", FORGETTING, *argv], capture_output=True, check=True, timeout=300)
    assert ended.stdout == b"\0".join([*map(str.encode, argv), b"RANKZERO_RUN_ID=" + b"a" * 2000, b""])
