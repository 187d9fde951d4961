"""The status of each rank by the probe's records, and its stack on request."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.worker.monitor.probe_lines import FIGURES, line
from worker.monitor.hangs import PythonFrame, RankStatus, users_frame
from worker.monitor.probe_reader import ProbeReader, parse_stack


def read(folder: Path) -> ProbeReader:
    reader = ProbeReader(folder)
    reader.look()
    return reader


def test_the_status_of_a_rank_is_its_last_line(tmp_path):
    stack = [["/a/train.py", 12, "main"]]
    (tmp_path / "7.jsonl").write_text(
        line(t=90.0, step=0, **{"in": "starting", "stack": [["/a/x.py", 1, "f"]]})
        + line(t=100.0, last_step_at=99.5, **FIGURES, **{"in": "stepping"})
        + line(t=103.0, last_step_at=99.5, stacks=True, **{"in": "computing", "stack": stack})
        + line(t=104.0, last_step_at=99.5, stacks=True, **{"in": "computing"})
    )
    reader = read(tmp_path)
    assert reader.latest() == {
        0: RankStatus(
            0,
            7,
            2,
            10,
            99.5,
            90.0,
            104.0,
            "computing",
            True,
            False,
            (PythonFrame("/a/train.py", 12, "main"),),
        )
    }
    assert reader.median_step_s() == 0.25


def test_reader_follows_the_process_of_a_rank_that_trains_now(tmp_path):
    (tmp_path / "7.jsonl").write_text(line(pid=7, step=50, t=100.0))  # before a restart
    (tmp_path / "8.jsonl").write_text(line(pid=8, step=3, t=200.0))
    (tmp_path / "9.jsonl").write_text(line(pid=9, step=0, t=300.0))  # a helper
    assert {rank: each.pid for rank, each in read(tmp_path).latest().items()} == {0: 8}


def test_a_rank_that_said_good_bye_has_ended(tmp_path):
    (tmp_path / "7.jsonl").write_text(line(events=[{"kind": "exit", "at": 1.0}]))
    reader = read(tmp_path)
    assert reader.latest()[0].ended and reader.records()[0].ended


def test_faulthandlers_text_becomes_frames_of_the_last_stack():
    text = (
        'Current thread 0x1 (most recent call first):\n  File "/old.py", line 1 in old\n\n'
        'Current thread 0x00007f (most recent call first):\n  File "/lib/python3.11/threading.py", line 5 in wait\n'
        '  File "/a b/train.py", line 41 in <module>\n'
    )
    frames = parse_stack(text)
    assert frames == [
        PythonFrame("/lib/python3.11/threading.py", 5, "wait"),
        PythonFrame("/a b/train.py", 41, "<module>"),
    ]
    assert users_frame(frames) == frames[1]
    assert users_frame(frames[:1]) == frames[0]
    assert users_frame([]) is None


STUCK = """
import faulthandler, os, signal, sys, time
if sys.argv[1] == "answers":
    file = open(f"{os.environ['RANKZERO_PROBE_DIR']}/{os.getpid()}.stack", "ab", 0)
    faulthandler.register(signal.SIGUSR2, file=file, all_threads=False, chain=False)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["answers", "cannot", "is somebody else's"])
def test_only_a_process_that_can_answer_is_asked_for_its_stack(tmp_path, kind):
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    folder = tmp_path / "probe"
    folder.mkdir()
    theirs = tmp_path if kind == "is somebody else's" else folder
    argument = "cannot" if kind == "cannot" else "answers"
    process = subprocess.Popen(
        [sys.executable, str(script), argument], stdout=subprocess.PIPE,
        env=os.environ | {"RANKZERO_PROBE_DIR": str(theirs)},
    )  # fmt: skip
    try:
        assert process.stdout.readline() == b"ready\n"
        (folder / f"{process.pid}.stack").touch()
        recorded = {"in": "computing", "stack": [["/recorded.py", 3, "f"]]}
        (folder / f"{process.pid}.jsonl").write_text(line(pid=process.pid, stacks=True, **recorded))
        reader = read(folder)
        stacks = reader.ask_stacks([each for each in reader.latest().values() if each.pid == process.pid], wait_s=300)
        assert stacks[0][0].file == (str(script) if kind == "answers" else "/recorded.py")
        time.sleep(0.05)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
