"""The probe sees what unchanged scripts do, and no script notices it. Real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from domain.launch import plan
from domain.spec import RunSpec
from tests.worker.probe.watched import PROBE, TORCHRUN, TRAINING, Watched
from worker.monitor.hangs import hang_verdict, users_frame
from worker.monitor.probe_reader import ProbeReader
from worker.monitor.watch import Watch

pytestmark = pytest.mark.real

INTERPRETERS = [
    python
    for python in ["python3.9", "python3.10", "python3.12", "python3.13", sys.executable]
    if shutil.which(python) and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


# -- without torch: what every Python pays and sees -----------------------------------------------

FAKE_TORCH = {
    "torch/__init__.py": """
        __version__ = '2.4.0'
        class Tensor:
            def to(self): pass
            def cuda(self): pass
        class autograd:
            def backward(): pass
        import torch.optim
        """,
    "torch/optim/__init__.py": "from torch.optim.optimizer import Optimizer\n",
    "torch/optim/optimizer.py": """
        hooks = []
        def register_optimizer_step_post_hook(hook): hooks.append(hook)
        def register_optimizer_step_pre_hook(hook): pass
        class Optimizer:
            param_groups = []
            def step(self):
                for hook in hooks: hook(self, (), {})
        """,
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))


@pytest.mark.parametrize("python", INTERPRETERS, ids=lambda each: Path(each).name)
def test_steps_are_counted_on_every_python(watched, python):
    write(watched.folder / "lib", FAKE_TORCH)
    script = watched.script("""
        import torch
        optimizer = torch.optim.Optimizer()
        for _ in range(7): optimizer.step()
        """)
    watched.run([python, script], env=watched.environment(str(watched.folder / "lib"), RANK="3", WORLD_SIZE="5"))
    last = watched.lines()[-1]
    assert (last["rank"], last["world_size"], last["step"]) == (3, 5, 7)
    assert not watched.events("error")


def test_a_torch_without_the_hooks_is_told_once_and_breaks_nothing(watched):
    write(watched.folder / "lib", FAKE_TORCH | {"torch/optim/optimizer.py": "class Optimizer: pass\n"})
    script = watched.script("import torch; torch.optim.Optimizer(); print('done')")
    env = watched.environment(str(watched.folder / "lib"), RANK="0")
    assert watched.run([sys.executable, script], env=env) == "done\n"
    (error,) = watched.events("error")
    assert (error["hook"], "register_optimizer_step_post_hook" in error["message"]) == (
        "torch.optim.optimizer",
        True,
    )
    assert watched.read().faults() == [
        f"rank 0: the probe's steps (torch.optim.optimizer) part failed: {error['message']}"
    ]


BREAKING = """
    import torch, rankzero_probe.recorder as recorder
    def broken(*_): raise RuntimeError("no such figure")
    recorder.{name} = broken
    optimizer = torch.optim.Optimizer()
    for _ in range(7): optimizer.step()
    print("done")
    """


@pytest.mark.parametrize(
    ("name", "part", "steps"), [("_peak_memory_bytes", "memory", 7), ("_figures", "recording", None)]
)
def test_a_part_that_breaks_is_told_as_a_finding_and_the_training_goes_on(watched, name, part, steps):
    write(watched.folder / "lib", FAKE_TORCH)
    env = watched.environment(str(watched.folder / "lib"), RANK="3", WORLD_SIZE="4")
    assert watched.run([sys.executable, watched.script(BREAKING.format(name=name))], env=env) == "done\n"
    watch = Watch(watched.records.parent, RunSpec(target="/a.py"), watched.read())
    (finding,) = [each for each in watch.judge() if each.kind == "probe part failed"]
    assert finding.evidence == (
        f"rank 3: the probe's {part} part failed: RuntimeError: no such figure; the training is not affected."
    )
    assert steps is None or watched.lines()[-1]["step"] == steps


def test_a_folder_that_cannot_be_written_breaks_nothing(watched):
    write(watched.folder / "lib", FAKE_TORCH)
    watched.records.parent.mkdir()
    watched.records.write_text("a file is in the way")
    script = watched.script("import torch; torch.optim.Optimizer().step(); print('done')")
    env = watched.environment(str(watched.folder / "lib"), RANK="0")
    assert watched.run([sys.executable, script], env=env) == "done\n"


def test_a_script_finds_its_path_and_its_sitecustomize_as_without_the_probe(watched):
    write(watched.folder / "site", {"sitecustomize.py": "import sys; sys.customised_by = __file__\n"})
    show = "import sys, sitecustomize; print(sys.path, sys.customised_by, sitecustomize.__file__)"
    site = str(watched.folder / "site")
    with_probe = watched.run([sys.executable, "-c", show], env=watched.environment(site))
    without = watched.run([sys.executable, "-c", show], env=os.environ | {"PYTHONPATH": site})
    assert with_probe == without


def test_an_error_in_the_sites_own_customisation_is_reported_as_without_the_probe(watched):
    write(watched.folder / "site", {"sitecustomize.py": "raise ValueError('its own fault')\n"})
    site = str(watched.folder / "site")
    command = [sys.executable, "-c", "print('done')"]
    said = []
    for env in (watched.environment(site), os.environ | {"PYTHONPATH": site}):
        process = watched.start(command, env=env)
        said.append(process.communicate(timeout=300))
    assert said[0] == said[1]
    assert "its own fault" in said[0][1]


def test_without_the_variable_nothing_of_the_probe_is_loaded(watched):
    env = os.environ | {"PYTHONPATH": str(PROBE)}
    loaded = watched.run([sys.executable, "-c", "import sys; print('rankzero_probe' in sys.modules)"], env=env)
    assert loaded == "False\n"
    assert not watched.records.exists()


def test_a_process_that_trains_nothing_leaves_no_record(watched):
    watched.run([sys.executable, "-c", "import json, subprocess, http.client"], env=watched.environment(RANK="0"))
    assert not watched.records.exists()


def test_the_server_of_the_record_says_nothing_in_the_log_of_the_script(watched):
    script = watched.script("import torch.distributed, sys; sys.exit('mine')")
    environment = watched.environment(RANK="0", WORLD_SIZE="2")
    process = watched.start([sys.executable, script], env=environment)
    assert process.communicate(timeout=300) == ("", "mine\n")
    assert [event["recorded"] for event in watched.events("collectives")] == [True]


def test_a_child_of_a_rank_is_no_rank_by_its_variables(watched):
    write(watched.folder / "lib", FAKE_TORCH)
    script = watched.script("""
        import subprocess, sys, torch
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        """)
    watched.run([sys.executable, script], env=watched.environment(str(watched.folder / "lib"), RANK="0"))
    assert len(list(watched.records.glob("*.jsonl"))) == 1


def test_a_loaders_module_keeps_its_own_loader_and_source(watched):
    write(watched.folder / "lib", FAKE_TORCH)
    show = """if True:
        import inspect, torch.optim.optimizer as module
        loader = module.__loader__
        print(type(loader).__name__, sorted(vars(loader)), "hooks = []" in inspect.getsource(module))
        """
    env = watched.environment(str(watched.folder / "lib"))
    assert watched.run([sys.executable, "-c", show], env=env) == "SourceFileLoader ['name', 'path'] True\n"


# -- with torch -------------------------------------------------------------------------------------


@pytest.mark.training
def test_two_ranks_of_an_unchanged_script_are_seen(watched):
    """Two processes of a data loader each, a validation in between, set_epoch forgotten."""
    write(watched.folder / "site", {"sitecustomize.py": "import os; os.environ['CUSTOMISED'] = '1'\n"})
    began = time.monotonic()
    out = watched.ddp(
        """
        import os
        dist.init_process_group("gloo")
        train(set_epoch=False, workers=2)
        sys.stdout.write(f"{os.environ['CUSTOMISED']} {'worker/probe' in str(sys.path)}\\n")
        dist.destroy_process_group()
        """,
        env=watched.environment(str(watched.folder / "site")),
    )
    lasted = time.monotonic() - began
    assert out.splitlines() == ["1 False"] * 2
    statuses = watched.read().latest()
    assert {rank: (each.step, each.world_size, each.ended) for rank, each in statuses.items()} == {
        0: (30, 2, True), 1: (30, 2, True)
    }  # fmt: skip
    assert len(list(watched.records.glob("*.jsonl"))) == 2
    stepping = [line for line in watched.lines() if "step_time_s" in line]
    assert all(line["data_wait_s"] >= 0 and 0 < line["step_time_s"] < lasted for line in stepping)
    for line in stepping:  # 16 samples a step, whatever the validation loader took in between
        assert line["samples_per_s"] == pytest.approx(16 * line["steps_per_s"], rel=1e-3)
    assert all(line["peak_memory_bytes"] > 50e6 and line["stacks"] for line in watched.lines())
    assert not watched.events("error")
    for event in watched.events("reduction"):  # one weight and one bias of a Linear(8, 1)
        assert (event["buckets_bytes"], event["rebuilt"], event["unused_bytes"]) == ([36], True, 0)
        assert 0 <= event["overlap_s"] <= event["communication_s"]
    assert watched.events("reduction")
    phases = ["torch imported", "rendezvous", "model built", "first batch", "first step"]
    for ends in watched.read().starts().values():
        assert sorted(ends, key=lambda phase: ends[phase]["at"]) == phases
    assert watched.mistakes() == ["set_epoch never called"]


@pytest.mark.long
@pytest.mark.training
def test_ranks_with_the_same_samples_and_models_that_drift_are_found(watched):
    """Two mistakes at once: shuffle=True after the same seed, and model.module in place of the wrapper."""
    watched.ddp("""
        dist.init_process_group("gloo")
        train(shard=False, epochs=2)
        train(epochs=2, bypass=True)
        """)
    assert watched.mistakes() == ["parameters differ", "same samples on several ranks"]
    assert not watched.events("error")


@pytest.mark.long  # tests/end_to_end/test_watched.py: two hangs, their lines and stacks
def test_a_rank_that_hangs_before_a_collective_is_named_with_its_line(watched):
    script = watched.script(
        TRAINING
        + textwrap.dedent("""
        def sleep_for_ever(epoch, step):
            import time
            if dist.get_rank() == 1 and (epoch, step) == (1, 3):
                time.sleep(600)  # HERE

        dist.init_process_group("gloo")
        train(before_step=sleep_for_ever)
        """)
    )
    here = 1 + [line.endswith("# HERE") for line in Path(script).read_text().splitlines()].index(True)
    process = watched.start([*TORCHRUN, "--nproc-per-node=2", script])
    try:
        reader, statuses, deadline = ProbeReader(watched.records), {}, time.monotonic() + 300
        while not (len(statuses) == 2 and all(each.frames for each in statuses.values()) and statuses[0].step == 14):
            assert process.poll() is None and time.monotonic() < deadline, statuses
            time.sleep(0.2)
            reader.look()
            statuses = reader.latest()
        stacks = reader.ask_stacks(list(reader.latest().values()), wait_s=300)
        assert (stacks[1][0].file, stacks[1][0].line, stacks[1][0].function) == (
            script,
            here,
            "sleep_for_ever",
        )
        assert users_frame(stacks[0]).function == "train"
        assert all((watched.records / f"{each.pid}.stack").stat().st_size for each in statuses.values())
        later = time.time() + 62
        verdict = hang_verdict(statuses.values(), later, reader.median_step_s())
        assert [each.rank for each in verdict.behind] == [1]
        assert f"Rank 1 is behind: at train.py line {here} in sleep_for_ever, after step 13." in verdict.sentence
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=300)


@pytest.mark.training
@pytest.mark.long
def test_ranks_of_mp_spawn_are_told_apart(watched):
    script = watched.script(
        TRAINING
        + textwrap.dedent("""
        import os
        import torch.multiprocessing as mp

        def work(rank, world_size, port):
            dist.init_process_group(
                "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
            train(epochs=2)

        if __name__ == "__main__":
            import socket
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            mp.spawn(work, (2, port), nprocs=2)
        """)
    )
    watched.run([sys.executable, script])
    statuses = watched.read().latest()
    assert {rank: (each.step, each.world_size) for rank, each in statuses.items()} == {0: (20, 2), 1: (20, 2)}
    assert len(list(watched.records.glob("*.jsonl"))) == 2
    assert watched.mistakes() == []


@pytest.mark.training
@pytest.mark.long
def test_one_process_accumulates_compiles_and_takes_the_signal_for_itself(watched):
    script = watched.script("""
        import signal, torch
        from torch.utils.data import DataLoader, TensorDataset
        signal.signal(signal.SIGUSR2, lambda *_: None)
        model = torch.nn.Linear(4, 1)
        slow, fast = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
        step = torch.compile(slow.step, backend="eager")
        loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=2)
        for number, (batch,) in enumerate(loader, start=1):
            model(batch).sum().backward()
            if number % 4 == 0:
                step()
                fast.step()
        """)
    watched.run([sys.executable, script])
    (rank,) = watched.read().latest().values()
    assert (rank.rank, rank.step, rank.stacks, rank.ended) == (0, 8, False, True)
    (ends,) = watched.read().starts().values()
    assert ends["compile"]["seconds"] > 0 and ends["compile"]["began"] < ends["first step"]["at"]
    lines = [line for line in watched.lines() if "samples_per_s" in line]  # more than one on a slow machine
    assert lines
    for line in lines:
        assert line["samples_per_s"] == pytest.approx(8 * line["steps_per_s"], rel=1e-3)
    assert not watched.events("error")


def test_an_exception_in_the_data_points_at_the_users_line(watched):
    script = watched.script("""
        from torch.utils.data import DataLoader, Dataset
        class Broken(Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): raise ValueError("no such sample")
        for batch in DataLoader(Broken()): pass
        """)
    process = watched.start([sys.executable, script])
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert 'File "<rankzero probe>"' in err and str(PROBE) not in err
    from worker.diagnosis.causes.tracebacks import find_failure

    assert find_failure(err).place == ", train.py line 5"


@pytest.mark.long
@pytest.mark.training
@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(["image_classifier", "--accumulate=2", "--workers=1"], id="image_classifier"),
        pytest.param(["language_model", "--max-steps=20"], id="language_model"),
    ],
)
def test_no_false_alarm_on_the_recipes(watched, recipe):
    name, *options = recipe
    argv = [
        *TORCHRUN,
        "--nproc-per-node=2",
        str(plan.recipe_path(name)),
        "--epochs=2",
        "--max-steps=40",
        *options,
    ]
    watched.run(argv)
    statuses = watched.read().latest()
    assert {event["count"] > 1000 for event in watched.events("parameters")} == {True}
    assert any("tokens_per_s" in line for line in watched.lines()) == (name == "language_model")
    assert len(statuses) == 2 and len({each.step for each in statuses.values()}) == 1
    assert watched.mistakes() == [] and not watched.events("error")
