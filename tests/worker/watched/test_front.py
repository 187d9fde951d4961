"""A watched command behaves as without us: its bytes, terminal, signals, exit code, whatever fails beside it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.end_to_end.product import wait_for
from worker.node import processes
from worker.watched import folder as folders

pytestmark = pytest.mark.real

DRIVER = """
import sys
from pathlib import Path
from worker.watched.command import leave
from worker.watched.front import WatchOptions, watch

class Delivered:
    def __init__(self, folder):
        (folder / "companion.json").write_text('{"state": "done"}')
    def poll(self):
        return 0

class Buggy(Delivered):
    def poll(self):
        raise KeyError("a bug")

look_only, companion = sys.argv[2] == "look only", Buggy if sys.argv[2] == "buggy" else Delivered
leave(watch(WatchOptions(sys.argv[3:], look_only=look_only), Path(sys.argv[1]), companion))
"""
LIMIT_S = 120.0
COUNTING = """
import signal, sys, time, pathlib
count = []
signal.signal(signal.SIGTERM, lambda *_: count.append(1))
signal.signal(signal.SIGINT, lambda *_: count.append(1))
pathlib.Path("ready").touch()
while not count:
    time.sleep(0.01)
time.sleep(0.6)  # longer than the front thinks about it
sys.exit(len(count))
"""


class Watch:
    """One `rankzero watch`, whose companion has nothing to send."""

    def __init__(self, data: Path, *argv: str, how: str = "", **options) -> None:
        self.data = data
        command = [sys.executable, "-P", "-c", DRIVER, str(data), how, *argv]
        self.process = subprocess.Popen(command, **{"cwd": data.parent} | options)

    @property
    def attempt(self) -> Path:
        return wait_for(lambda: folders.all_folders(self.data), "the folder")[0] / "attempt"

    @property
    def state(self):
        return json.loads((self.attempt / "supervisor.json").read_text())

    def log(self, name: str) -> bytes:
        return (self.attempt / "logs" / name).read_bytes()

    def ready(self) -> None:
        wait_for((self.data.parent / "ready").exists, "the command to be ready")


@pytest.fixture
def watch(tmp_path):
    watches: list[Watch] = []

    def start(*argv: str, **options) -> Watch:
        piped = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        watches.append(Watch(tmp_path / "data", *argv, **piped | options))
        return watches[-1]

    yield start
    for one in watches:
        one.process.kill()
        one.process.communicate()


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_the_bytes_of_a_command_pass_unchanged_and_are_kept(watch):
    echo = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data); sys.stderr.write('err\\n')"
    given = bytes(range(256)) * 1000 + b"\rno end of line"
    one = watch(*script(echo), stdin=subprocess.PIPE)
    out, err = one.process.communicate(given, LIMIT_S)
    assert (out, err, one.process.returncode) == (given, b"err\n", 0)
    assert (one.log("rank0.out"), one.log("rank0.err")) == (given, b"err\n")
    state = one.state
    assert (state["state"], state["exit_code"], state["launch_error"]) == ("ended", 0, None)
    assert state["started_at"] <= state["running_at"] <= state["ended_at"]


def test_streams_that_go_to_one_place_keep_their_order(watch, tmp_path):
    lines = "import os\nfor i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)"
    with (tmp_path / "both").open("wb") as both:
        one = watch(*script(lines), stdout=both, stderr=both)
        assert one.process.wait(LIMIT_S) == 0
    assert (tmp_path / "both").read_bytes() == one.log("rank0.out") == b"".join(b"%d\n" % i for i in range(2000))
    assert json.loads((one.attempt / "launch.json").read_text())["is_merged"]


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", -9), ("kill -TERM $$", -15)])
def test_the_front_ends_as_its_command_ended(watch, command, code):
    one = watch("sh", "-c", command)
    assert one.process.wait(LIMIT_S) == code
    assert one.state["exit_code"] == code


def test_what_cannot_be_started_has_a_shells_code_and_sentence_and_is_no_run(watch, tmp_path):
    (tmp_path / "plain").write_text("exit 5")
    one = watch("./plain")
    assert (one.process.communicate()[1], one.process.returncode) == (b"rankzero: ./plain: Permission denied\n", 126)
    one = watch("no-such-program")
    sentence = b"rankzero: no-such-program: command not found\n"
    assert (one.process.communicate()[1], one.process.returncode) == (sentence, 127)
    assert not (tmp_path / "data").exists()
    (tmp_path / "plain").chmod(0o700)
    assert watch("./plain").process.wait(LIMIT_S) == 5  # a shell script without a first line that says so


def test_the_environment_is_the_users_with_the_probe(watch, tmp_path):
    one = watch("env", "-0", env=os.environ | {"PYTHONPATH": "/mine", "OMP_NUM_THREADS": "3"})
    got = dict(entry.split("=", 1) for entry in one.process.communicate()[0].decode().split("\0") if entry)
    ours = {name: got.pop(name) for name in [*got] if name.startswith("RANKZERO_")}
    probe, _, mine = got.pop("PYTHONPATH").partition(":")
    assert (Path(probe) / "sitecustomize.py").exists() and mine == "/mine"
    assert got == {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "3"}
    assert ours | {"PYTHONPATH": probe} == json.loads((one.attempt / "launch.json").read_text())["env"]


def test_a_reader_that_has_enough_ends_the_command_as_without_us(watch):
    one = watch(*script("import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nwhile True: print('line')"))
    assert one.process.stdout.read(10) == b"line\nline\n"
    one.process.stdout.close()
    assert one.process.wait(LIMIT_S) == -signal.SIGPIPE


def test_what_is_left_in_the_background_goes_on_writing(watch, tmp_path):
    waits = "while [ ! -e go ]; do sleep 0.02; done; echo late"
    one = watch("sh", "-c", f"echo first; ({waits}) & exit 3")
    assert one.process.wait(LIMIT_S) == 3
    (tmp_path / "go").touch()
    assert one.process.stdout.read() == b"first\nlate\n"


def test_a_killed_front_ends_its_command(watch):
    one = watch(*script("import pathlib, time; pathlib.Path('ready').touch(); time.sleep(600)"))
    one.ready()
    command = processes.find(one.state["launcher_pid"])
    one.process.kill()
    wait_for(lambda: not processes.is_alive(command), "the command to end")


@pytest.mark.parametrize("is_for_all", [False, True])
def test_a_signal_reaches_the_command_once_whether_sent_to_us_or_to_all(watch, is_for_all):
    one = watch(*script(COUNTING), start_new_session=True)
    one.ready()
    (os.killpg if is_for_all else os.kill)(one.process.pid, signal.SIGTERM)
    assert one.process.wait(LIMIT_S) == 1


def test_stop_from_the_page_ends_the_command_but_not_where_it_is_only_looked_at(watch):
    one = watch(*script(COUNTING))
    one.ready()
    (one.attempt / "stop").write_text("600")
    assert one.process.wait(LIMIT_S) == 1
    assert one.state["stop_requested_at"] is not None


def test_a_command_that_is_only_looked_at_is_not_stopped(watch, tmp_path):
    one = watch("sh", "-c", "touch ready; while [ ! -e go ]; do sleep 0.02; done", how="look only")
    one.ready()
    wait_for((one.attempt / "supervisor.json").exists, "its state")
    (one.attempt / "stop").write_text("0")
    wait_for((one.attempt / "supervisor.json").exists, "its front to look at files")
    (tmp_path / "go").touch()
    assert one.process.wait(LIMIT_S) == 0
    assert one.state["stop_requested_at"] is None


def test_a_data_folder_that_cannot_be_written_costs_one_line(watch, tmp_path):
    (tmp_path / "data").write_text("a file in its place")
    one = watch("sh", "-c", "echo trained; exit 4")
    out, err = one.process.communicate(timeout=LIMIT_S)
    assert (out, one.process.returncode) == (b"trained\n", 4)
    assert err.startswith(b"rankzero: not watched: ") and err.count(b"\n") == 1


def test_a_full_disk_of_ours_costs_one_line(watch, tmp_path):
    """A limit of no byte for each file stands for it."""
    one = watch(
        "sh", "-c", "echo trained; exit 4", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    )
    out, err = one.process.communicate(timeout=LIMIT_S)
    assert (out, one.process.returncode) == (b"trained\n", 4)
    assert err.startswith(b"rankzero: not watched: File too large") and err.count(b"\n") == 1
    assert [*(tmp_path / "data/watched").iterdir()] == []


def test_a_bug_of_ours_ends_no_command(watch, tmp_path):
    one = watch("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; echo trained; exit 4", how="buggy")
    assert one.process.stderr.readline() == b"rankzero: not watched any more: KeyError: 'a bug'\n"
    (tmp_path / "go").touch()
    assert (one.process.communicate(timeout=LIMIT_S)[0], one.process.returncode) == (b"trained\n", 4)


def test_a_folder_that_is_deleted_ends_no_command(watch, tmp_path):
    one = watch("sh", "-c", "touch ready; while [ ! -e go ]; do sleep 0.02; done; echo trained; exit 6")
    one.ready()
    subprocess.run(["rm", "-rf", tmp_path / "data"], check=True)
    wait_for(lambda: not (tmp_path / "data").exists(), "the folder to be gone")
    (tmp_path / "go").touch()
    assert (one.process.communicate(timeout=LIMIT_S)[0], one.process.returncode) == (b"trained\n", 6)


def test_a_command_within_a_watched_one_is_not_watched_again(watch):
    command = [sys.executable, "-P", "-c", DRIVER, "elsewhere", "", "sh", "-c", "echo inner; exit 2"]
    one = watch(*command)
    out, err = one.process.communicate(timeout=LIMIT_S)
    assert (out, one.process.returncode) == (b"inner\n", 2)
    assert err == b"rankzero: this run is watched already; the command runs in it\n"


# -- terminals


@pytest.fixture
def terminal():
    """Our end and the other end of a terminal that passes bytes as they are."""
    ours, theirs = os.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def in_terminal(theirs: int) -> dict[str, object]:
    def control() -> None:
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    return {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True, "preexec_fn": control}


def read_until(ours: int, text: bytes) -> bytes:
    got = b""
    while text not in got:
        assert select.select([ours], [], [], LIMIT_S)[0], got
        got += os.read(ours, 4096)
    return got


SIZES = """
import os, signal, sys
print(*(os.isatty(fd) for fd in range(3)), *os.get_terminal_size(), flush=True)
signal.signal(signal.SIGWINCH, lambda *_: None)
print("name?", input(), flush=True)
while os.get_terminal_size().columns != 55:
    pass
print("bar\\rdone", file=sys.stderr)
"""


def test_in_a_terminal_the_command_has_one_of_the_same_size(watch, terminal):
    ours, theirs = terminal
    one = watch(*script(SIZES), **in_terminal(theirs))
    assert read_until(ours, b"\n") == b"True True True 111 33\n"
    os.write(ours, b"Ada\n")
    assert read_until(ours, b"\n") == b"name? Ada\n"
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 55, 0, 0))
    assert read_until(ours, b"\n") == b"bar\rdone\n"
    assert one.process.wait(LIMIT_S) == 0
    assert one.log("rank0.out") == b"True True True 111 33\nname? Ada\nbar\rdone\n"


def test_ctrl_c_reaches_the_command_once(watch, terminal):
    ours, theirs = terminal
    one = watch(*script(COUNTING), **in_terminal(theirs))
    one.ready()
    os.write(ours, b"\x03")
    assert one.process.wait(LIMIT_S) == 1


def test_ctrl_z_stops_and_fg_continues(terminal, tmp_path):
    """Under a shell that controls jobs, as people have it."""
    ours, theirs = terminal
    command = [sys.executable, "-P", "-c", DRIVER, "data", "", "sh", "-c", "echo begun; read line; echo $line; exit 5"]
    job = " ".join("'" + word.replace("'", "'\\''") + "'" for word in command)
    options = in_terminal(theirs) | {"cwd": tmp_path}
    script_of_shell = f"PS1=; {job}; echo stopped; fg >/dev/null; echo code $?"
    shell = subprocess.Popen(["bash", "--norc", "-ic", script_of_shell], **options)
    try:
        read_until(ours, b"begun\n")
        os.write(ours, b"\x1a")
        read_until(ours, b"stopped\n")
        os.write(ours, b"more\n")
        assert b"more" in read_until(ours, b"code 5")
    finally:
        shell.kill()
        shell.wait()


def test_a_terminal_that_goes_away_is_an_end_like_any(watch, terminal):
    """What the command still writes fails as it does without us."""
    ours, theirs = os.openpty()
    one = watch(*script(
        "import os, signal, time, pathlib\nsignal.signal(signal.SIGHUP, lambda *_: None)\n"
        "pathlib.Path('ready').touch()\ntry:\n  while True: os.write(1, b'x'); time.sleep(0.01)\n"
        "except OSError as error: os._exit(error.errno)"
    ), **in_terminal(theirs))  # fmt: skip
    os.close(theirs)
    one.ready()
    os.close(ours)
    assert one.process.wait(LIMIT_S) == errno.EIO
