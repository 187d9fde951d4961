"""What `make test-gpu` does where there is no GPU, and its rows as far as they go on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.gpu import __main__ as program
from benchmarks.gpu.machine import Lacking, Machine, Wrong, nvidia_smi
from benchmarks.gpu.recipes import off_by
from benchmarks.gpu.watching import SCRIPTS, hardware_figures, holders, memory_figures, mfu_figure, profile_figure
from benchmarks.gpu.wheels import LEFT_OUT
from cli.fleet.own_wheel import constraints, write_wheel

MIB = 1024 * 1024
NEEDS_A_GPU = {"memory", "foreign"}


def test_without_a_gpu_every_row_says_so_and_nothing_is_written(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(program, "gpu_names", list)
    assert program.main(["--out", str(tmp_path / "gpu.json")]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in rows[1:-1]] == [*program.ROWS]
    assert all(line.endswith("needs a GPU") for line in rows[1:-1]) and "nothing was measured" in rows[-1]
    assert not (tmp_path / "gpu.json").exists()


def test_a_row_that_fails_is_short_or_lacks_something_stops_no_other(monkeypatch):
    def act(outcome):
        def measure(_self, _machine):
            if isinstance(outcome, Exception):
                raise outcome
            yield program.Figure("a", "1", "b", "2", off_by(1, outcome), 1.5, "less")

        return measure

    machine = Machine(None, Path(), "cuda", 1, ends_at=time.monotonic() + 600)
    states = {}
    for outcome in (1.2, 2.0, Lacking("two GPUs"), Wrong("no time"), KeyError("typo")):
        monkeypatch.setattr(program.Row, "measure", act(outcome))
        states[str(outcome)] = program.measured("fp32", machine)
    assert [one.state for one in states.values()] == ["met", "short", "needs two GPUs", "failed", "failed"]
    assert [one.is_bad for one in states.values()] == [False, True, False, True, True]
    text = program.table([*states.values()])
    assert "fp32 failed: no time" in text and "needs two GPUs" in text
    document = program.document([*states.values()], ["NVIDIA L4"])
    assert document["machine"].startswith("1 x NVIDIA L4, ") and len(document["figures"]) == 2
    assert {row["state"] for row in document["rows"]} == {"met", "short", "needs two GPUs", "failed"}
    json.dumps(document)


def test_no_row_begins_when_time_is_up():
    machine = Machine(None, Path(), "cuda", 1, ends_at=0.0)
    assert program.measured("two", machine).why == "no time was left for it"


def test_a_row_that_waits_ends_when_time_is_up(monkeypatch):
    def waits(_self, _machine):
        yield threading.Event().wait(600)

    monkeypatch.setattr(program.Row, "measure", waits)
    monkeypatch.setattr("benchmarks.gpu.machine.time", SimpleNamespace(monotonic=lambda: 100.0))
    machine = Machine(None, Path(), "cuda", 1, ends_at=101.1)
    outcome = program.measured("two", machine)
    assert (outcome.state, outcome.why) == ("failed", "it was not done when time was up")


def test_memory_picture_is_compared_with_known_sizes():
    script = (SCRIPTS / "out_of_memory.py").read_text()
    number = 1 + next(n for n, line in enumerate(script.splitlines()) if "this line fills it" in line)
    sizes = {"parameters": 64 * MIB, "gradients": 64 * MIB, "optimizer": 128 * MIB}
    memory = {"shares": dict(sizes), "lines": [{"line": number, "bytes": 9}, {"line": 1, "bytes": 2}]}
    assert all(figure.is_met for figure in memory_figures(memory, sizes, script))
    memory["shares"]["gradients"] //= 2
    assert [figure.is_met for figure in memory_figures(memory, sizes, script)] == [True, False, True]
    memory["lines"].reverse()
    memory["lines"][0]["bytes"] = 10
    with pytest.raises(Wrong, match="line 1 is named"):
        [*memory_figures(memory, sizes, script)]
    with pytest.raises(Wrong, match="no memory picture"):
        [*memory_figures(None, sizes, script)]


def test_hardware_series_are_compared_with_nvidia_smi():
    def ask(command, **_how):
        assert command[:2] == ["nvidia-smi", "--query-gpu=memory.used,power.draw"]
        return SimpleNamespace(stdout="1000, 71.25\n512, [N/A]\n")

    first, second = nvidia_smi("memory.used,power.draw", ask)
    assert (first, second) == ({"memory.used": 1000.0, "power.draw": 71.25}, {"memory.used": 512.0})
    series = {"hardware/gpu0/memory_used_bytes": [[1, 1010 * MIB, 0.0]], "hardware/gpu0/power_w": [[1, 140.0, 0.0]]}
    assert [figure.is_met for figure in hardware_figures(series, [first, second])] == [True, False]
    of_second = {name.replace("gpu0", "gpu1"): points for name, points in series.items()}
    assert [figure.is_met for figure in hardware_figures(of_second, [first, second])] == [False]
    with pytest.raises(Wrong, match="no series hardware/gpu0/memory_used_bytes"):
        [*hardware_figures({}, [first])]
    with pytest.raises(Lacking, match="nvidia-smi"):
        nvidia_smi("memory.used", lambda *_, **__: subprocess.run(["false"], check=True))


def test_kernels_and_arithmetic_of_a_gpu_are_compared_with_the_scripts_own_count():
    device = {"busy_share": 0.9}
    assert profile_figure({"device": device, "seconds": 1.0, "steps": 10}, 0.1).is_met
    assert not profile_figure({"device": device | {"busy_share": 0.1}, "seconds": 1.0, "steps": 10}, 0.1).is_met
    served = SimpleNamespace(get=lambda _path: [{"devices": [{"name": "NVIDIA A100-SXM4-80GB"}]}])
    values = {"probe/tokens_per_s": [[1, 1000.0, 0.0]], "probe/model/parameters": [[1, 1e9, 0.0]]}
    machine = Machine(served, Path(), "cuda", 1, 0.0)
    machine.points = lambda _run, name, _source="events": values[name]
    figure = mfu_figure(machine, "r", {"tokens_per_s": 1100.0, "parameters": 1e9})
    assert figure.is_met and figure.ours == "6 TFLOP/s, MFU 1.9%" and figure.theirs == "6.6 TFLOP/s, MFU 2.1%"


def test_others_processes_are_known_by_their_numbers_or_hidden_by_a_container():
    node = {"load": {"gpus": [{"id": "a"}, {"id": "b", "holders": [{"pid": 7}, {"memory_bytes": 5}]}]}}
    assert holders(node) == {7, None} and holders({"load": None}) == set()


def test_wheels_are_of_what_a_dashboard_and_a_worker_need_beyond_torch(tmp_path):
    needed = {line.partition("==")[0] for line in constraints(("server", "worker", "torch"), LEFT_OUT).split()}
    assert {"streamlit", "uvicorn", "sqlalchemy", "psutil", "nvidia-ml-py", "tensorboard", "numpy"} <= needed
    assert not needed & (LEFT_OUT | {"sympy", "triton"})
    with zipfile.ZipFile(write_wheel(tmp_path, LEFT_OUT)) as wheel:
        (about,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        asked = [line for line in wheel.read(about).decode().splitlines() if line.startswith("Requires-Dist: ")]
    assert any("uvicorn" in line for line in asked) and not any("pyarrow" in line for line in asked)


@pytest.mark.long
@pytest.mark.training
def test_rows_run_on_a_cpu_as_far_as_they_go(tmp_path):
    """How fast anything is, is not asserted."""
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--out", str(out)]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1) and "language_model, fp32" in done.stdout, done.stderr
    states = {row["name"]: (row["state"], row["why"]) for row in json.loads(out.read_text())["rows"]}
    assert {name for name, (state, _) in states.items() if state == "needs a GPU"} == NEEDS_A_GPU, states
    assert {states[name][0] for name in states.keys() - NEEDS_A_GPU} <= {"met", "short", "needs a C compiler"}, states
    assert {states[name][0] for name in ("fp32", "bf16", "fp16", "resume", "two")} == {"met"}, states
