"""The recipes as people start them: with torchrun or plain python, as processes of their own."""

import ast
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = pytest.mark.training
RECIPES = Path(__file__).parents[2] / "worker" / "recipes"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
TORCHRUN += ["--log-dir=torchrun-logs"]  # else a folder stays in the place for temporary files
PATIENCE_S = 500
TINY = "--layers 1 --heads 2 --width 16 --context 16 --batch-size 4 --val-samples 9 --warmup-steps 2".split()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("It trains on real text on every machine without a download. " * 2000)
    return path


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen]]:
    """Processes that a failing test must not leave behind."""
    processes: list[subprocess.Popen] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            # The ranks too: without torchrun they would look for its store, and hold the pipe, for half an hour.
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate()


def environment(**changes: str) -> dict[str, str]:
    ranks = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    return {k: v for k, v in os.environ.items() if k not in ranks} | {"OMP_NUM_THREADS": "1"} | changes


def start(started: list, command: list[str], folder: Path, **changes: str) -> subprocess.Popen:
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started.append(process)
    return process


def finish(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    return output


def wait_for(process: subprocess.Popen, words: str) -> None:
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return
    raise AssertionError("".join(lines))


def read_events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.mark.long
def test_the_image_classifier_learns_digits_with_two_ranks(tmp_path: Path, started: list):
    command = [*TORCHRUN, str(RECIPES / "image_classifier.py"), "--epochs", "3", "--keep-last", "2"]
    output = finish(start(started, command, tmp_path))
    events = read_events(tmp_path)
    assert set(events) == {
        "train/loss", "train/lr", "train/grad_norm", "train/samples_per_s", "train/step_time_s",
        "train/data_wait_s", "train/epoch", "train/total_steps", "val/loss", "val/accuracy",
    }  # fmt: skip
    assert [step for step, _ in events["train/loss"]] == list(range(1, 67))
    assert events["train/total_steps"] == [(0, 66)]
    assert events["val/accuracy"][-1][1] > 0.6, "chance is 0.1"
    assert events["train/epoch"][-1] == (66, 3.0)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["best.pt", "step_00000044.pt", "step_00000066.pt"]
    assert "checkpoint saved: checkpoints/step_00000066.pt" in output


@pytest.mark.long
def test_the_language_model_saves_on_sigterm_under_torchrun_and_resumes(tmp_path: Path, text: Path, started: list):
    command = [*TORCHRUN, str(RECIPES / "language_model.py"), "--data", str(text), *TINY, "--epochs", "1000"]
    first = start(started, command, tmp_path / "first")
    wait_for(first, "step 10/")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=PATIENCE_S)
    [saved] = (tmp_path / "first" / "checkpoints").glob("step_*.pt")
    step = torch.load(saved, weights_only=True)["step"]
    assert step >= 10 and saved.name == f"step_{step:08d}.pt"

    last = step + 5
    output = finish(start(started, [*command, "--resume", str(saved), "--max-steps", str(last)], tmp_path / "second"))
    events = read_events(tmp_path / "second")
    assert [at for at, _ in events["train/loss"]] == list(range(step + 1, last + 1))
    assert events["train/total_steps"] == [(step, last)]
    assert {"val/perplexity", "train/tokens_per_s", "train/samples_per_s"} <= set(events)
    assert f"finished at step {last}/{last}" in output


@pytest.mark.long
def test_both_ranks_leave_with_code_0_when_only_one_gets_sigterm(tmp_path: Path, text: Path, started: list):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [
        sys.executable,
        str(RECIPES / "language_model.py"),
        "--data",
        str(text),
        *TINY,
        "--epochs",
        "1000",
    ]
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    main, other = (
        start(started, [*command, "--workers", "1"], tmp_path, RANK=str(rank), LOCAL_RANK=str(rank), **where)
        for rank in (0, 1)
    )
    wait_for(main, "step 10/")
    other.send_signal(signal.SIGTERM)
    assert "stopped at step" in finish(main)
    finish(other)
    assert list((tmp_path / "checkpoints").glob("step_*.pt"))


@pytest.mark.long
def test_without_torchrun_ddp_is_one_rank(tmp_path: Path, text: Path, started: list):
    command = [
        sys.executable,
        str(RECIPES / "language_model.py"),
        "--data",
        str(text),
        *TINY,
        "--max-steps",
        "2",
    ]
    assert "ddp on 1 x cpu" in finish(start(started, command, tmp_path))


@pytest.mark.long
def test_says_how_much_data_a_step_needs(tmp_path: Path, started: list):
    command = [
        sys.executable,
        str(RECIPES / "image_classifier.py"),
        "--strategy",
        "dp",
        "--batch-size",
        "2000",
    ]
    process = start(started, command, tmp_path)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "--strategy dp: no GPU is visible" in output or torch.cuda.is_available()
    assert "A step takes 2000 samples" in output


@pytest.mark.parametrize("recipe", ["image_classifier", "language_model"])
def test_defaults_can_be_read_from_the_source(recipe: str):
    tree = ast.parse((RECIPES / f"{recipe}.py").read_text())
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    adding = [call for call in calls if getattr(call.func, "attr", "") == "add_argument"]
    defaults = {
        ast.literal_eval(call.args[0]): ast.literal_eval(keyword.value)
        for call in adding
        for keyword in call.keywords
        if keyword.arg == "default"
    }
    assert {"--batch-size", "--lr", "--epochs", "--warmup-steps"} <= set(defaults)
    assert all(defaults[flag] > 0 for flag in ("--batch-size", "--lr", "--epochs"))
