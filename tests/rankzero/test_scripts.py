"""A script that watches itself: its end, its output, its figures, and that it is left as it was."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import wait_for
from tests.rankzero.watched_process import WatchedProcess

pytestmark = pytest.mark.real


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedProcess]:
    with WatchedProcess(tmp_path) as process:
        yield process


def test_the_import_loads_nothing_that_costs_time(watched: WatchedProcess):
    ended = watched.run(
        """
        import sys
        before = set(sys.modules)
        import rankzero
        print(sorted(set(sys.modules) - before), sorted(name for name in dir(rankzero) if name in ("log", "watch")))
        """
    )
    assert ended.out == "['rankzero'] ['log', 'watch']\n"


def test_a_script_is_a_run_from_the_call_to_its_end(watched: WatchedProcess):
    ended = watched.run(
        """
        import os, sys
        import rankzero
        run = rankzero.watch(name="mine", project="p", tags=["a"], look_only=True)
        assert rankzero.watch() is run
        print("step 1 loss 0.5")
        print("careful", file=sys.stderr)
        os.environ["RANKZERO_RUN_ID"] == run.id or sys.exit("no id")
        """
    )
    assert (ended.code, ended.out) == (0, "step 1 loss 0.5\n")
    assert ended.err.splitlines()[0] == "careful"
    attempt, state = watched.attempt, watched.attempt.state
    described = attempt.watched
    assert {name: described[name] for name in ("name", "project", "tags", "look_only")} == {
        "name": "mine", "project": "p", "tags": ["a"], "look_only": True,
    }  # fmt: skip
    assert described["argv"][-1].endswith("train.py")
    assert (state["state"], state["exit_code"], state["stop_requested_at"]) == ("ended", 0, None)
    assert (attempt.log("rank0.out"), attempt.log("rank0.err")) == ("step 1 loss 0.5\n", "careful\n")


@pytest.mark.parametrize(
    ("last_line", "exit_code", "trace"),
    [
        ("raise ValueError('no data')", 1, "ValueError: no data"),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no data')", 1, ""),
        ("sys.exit()", 0, ""),
    ],
)
def test_the_end_of_a_script_is_the_end_of_its_run(watched: WatchedProcess, last_line, exit_code, trace):
    ended = watched.run(f"import sys, rankzero\nrankzero.watch()\n{last_line}\n")
    attempt = watched.attempt
    assert (ended.code, attempt.state["exit_code"], attempt.state["state"]) == (exit_code, exit_code, "ended")
    log = attempt.log("rank0.err")
    assert (log.count("Traceback"), trace in log) == (1 if trace else 0, True)
    assert trace in ended.err


def test_a_person_who_interrupts_a_script_stops_its_run(watched: WatchedProcess):
    ended = watched.run("import rankzero\nrankzero.watch()\nraise KeyboardInterrupt\n")
    state = watched.attempt.state
    assert ended.code == -signal.SIGINT
    assert state["state"] == "ended"
    assert state["stop_requested_at"] is not None


def test_each_block_is_a_run_and_the_process_is_left_as_it_was(watched: WatchedProcess):
    ended = watched.run(
        """
        import os, sys
        import rankzero

        def outside():
            names = [name for name in os.environ if name.startswith("RANKZERO_") and "PROBE" not in name]
            ours = [finder for finder in sys.meta_path if "rankzero" in type(finder).__module__]
            return names, os.environ.get("PYTHONPATH"), sys.excepthook, sys.exit, vars(sys.stdout), sys.path[:], ours

        before = outside()
        with rankzero.watch(name="first") as first:
            print("one")
            rankzero.log({"loss": 1.0})
        print("between")
        rankzero.log({"loss": 7.0})
        try:
            with rankzero.watch(name="second"):
                rankzero.log({"loss": 2.0})
                raise LookupError("gone")
        except LookupError:
            pass
        first.stop()
        assert outside() == before, (before, outside())
        """
    )
    assert (ended.code, ended.out) == (0, "one\nbetween\n"), ended.err
    first, second = watched.attempts
    assert (first.state["exit_code"], second.state["exit_code"]) == (0, 1)
    assert first.log("rank0.out") == "one\n"
    assert (first.points(), second.points()) == ({"loss": [(0, 1.0)]}, {"loss": [(0, 2.0)]})
    assert "LookupError: gone" in second.log("rank0.err")
    assert ended.err.count("outside of a run") == 1


def test_steps_of_each_block_are_counted_anew(watched: WatchedProcess):
    ended = watched.run(
        """
        import torch
        import rankzero

        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(steps):
            for _ in range(steps):
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()

        with rankzero.watch():
            train(5)
        train(100)
        rankzero.watch()
        train(7)
        """
    )
    assert ended.code == 0, ended.err
    lasts = [attempt.records()[-1] for attempt in watched.attempts]
    assert [last["step"] for last in lasts] == [5, 7]
    assert all(last["events"][-1]["kind"] == "exit" for last in lasts)
    records = [record for attempt in watched.attempts for record in attempt.records()]
    assert [event for record in records for event in record.get("events", ()) if event["kind"] == "error"] == []


def test_children_are_part_of_the_run(watched: WatchedProcess):
    ended = watched.run(
        """
        import subprocess, sys
        import rankzero
        run = rankzero.watch()
        child = "import rankzero; print(rankzero.watch().id); rankzero.log({'loss': 3}, step=4)"
        out = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout
        assert out.strip() == run.id, out
        """
    )
    assert ended.code == 0, ended.err
    assert watched.attempt.points() == {"loss": [(4, 3.0)]}


def test_a_forked_child_does_not_end_the_run(watched: WatchedProcess):
    ended = watched.run(
        """
        import os, sys
        import rankzero
        rankzero.watch()
        if not (child := os.fork()):
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        """
    )
    assert (ended.code, watched.attempt.state["exit_code"]) == (0, 0)


def test_a_killed_script_leaves_its_run_to_the_companion(watched: WatchedProcess):
    process = watched.start("import rankzero, time\nrankzero.watch()\nprint('here', flush=True)\ntime.sleep(600)\n")
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.kill()
    process.communicate()
    assert watched.attempt.state["state"] == "running"


def test_stop_ends_a_script_as_its_launcher_would(watched: WatchedProcess):
    process = watched.start("import rankzero, time\nrankzero.watch()\nprint('here', flush=True)\ntime.sleep(600)\n")
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    (watched.attempt.folder / "stop").write_text("30")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert watched.attempt.state["stop_requested_at"] is not None


def test_nothing_of_ours_keeps_a_script_from_running(watched: WatchedProcess):
    watched.data.write_text("a file where the data directory should be")
    ended = watched.run("import rankzero\nrun = rankzero.watch()\nrankzero.log({'a': 1})\nprint('done', repr(run))\n")
    assert (ended.code, ended.out) == (0, "done Not watched\n")
    assert [line.partition(":")[0] for line in ended.err.splitlines()] == ["rankzero", "rankzero"]


def test_files_of_before_are_not_the_runs(watched: WatchedProcess):
    old = watched.folder / "old.pt"
    old.write_bytes(b"weights")
    watched.run("import rankzero, pathlib\nrankzero.watch()\npathlib.Path('new.pt').write_bytes(b'more')\n")
    existing = watched.attempt.folder / "worker" / "existing.json"
    wait_for(existing.exists, "the list of files")
    assert [Path(path).name for path in json.loads(existing.read_text())] == ["old.pt"]
