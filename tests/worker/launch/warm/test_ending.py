"""A forked torchrun ends as Python ends, but for the destruction of modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[4] / "worker" / "warm"
SCRIPT = """
import atexit, sys, threading, time
atexit.register(print, "atexit")
after_main = lambda: (threading.main_thread().join(), time.sleep(0.1), print("thread"))
threading.Thread(target=after_main).start()
print("out")
"""
LEAVING = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from rankzero_warm.training_program import leave
path = sys.argv[1]
try:
    exec(compile(open(path).read(), path, "exec"), {{"__name__": "__main__"}})
except BaseException as error:
    error.__traceback__ = error.__traceback__.tb_next
    leave(error)
    raise
leave(None)
"""
ENDS = {
    "the last line": "",
    "an exit code": "sys.exit(3)",
    "a large exit code": "sys.exit(259)",
    "no exit code": "sys.exit()",
    "a sentence": "sys.exit('no such option')",
    "an error": "raise ValueError('bad labels') from KeyError('x')",
    "a hook": "sys.excepthook = lambda *error: print('hook', error[1])\nraise ValueError('bad labels')",
}


def run(folder: Path, text: str, *command: str) -> tuple[int, str, str]:
    script = folder / "program.py"
    script.write_text(SCRIPT + text)
    ended = subprocess.run([sys.executable, *command, str(script)], capture_output=True, text=True, timeout=300)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("end", ENDS)
def test_it_prints_waits_and_exits_as_python_does(tmp_path: Path, end: str):
    expected = run(tmp_path, ENDS[end])
    assert "thread\natexit\n" in expected[1]
    assert run(tmp_path, ENDS[end], "-c", LEAVING) == expected


def test_an_interrupt_ends_it_by_its_signal_as_python_does(tmp_path: Path):
    code, out, err = run(tmp_path, "raise KeyboardInterrupt", "-c", LEAVING)
    assert (code, out) == run(tmp_path, "raise KeyboardInterrupt")[:2] and "KeyboardInterrupt" in err


def test_nothing_is_taken_apart(tmp_path: Path):
    kept = "import os\nclass Kept:\n    def __del__(self, write=os.write): write(1, b'taken apart')\nkept = Kept()\n"
    assert "taken apart" in run(tmp_path, kept)[1]
    assert "taken apart" not in run(tmp_path, kept, "-c", LEAVING)[1]
