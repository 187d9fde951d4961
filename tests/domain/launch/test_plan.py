"""The launch plan: which command, which variables, for which node. Pure, so these are tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from domain.choices import RECIPES
from domain.launch import plan as launch
from domain.launch.plan import WIDE, local_rank_option, recipe_path
from domain.spec import PASSED, RunSpec

CNN = str(recipe_path("image_classifier"))


def plan(spec: RunSpec, **place) -> launch.LaunchPlan:
    return launch.plan(spec, launch.TaskContext(**place))


def argv(spec: RunSpec, **place):
    return list(plan(spec, **place).argv)


def test_one_node_needs_no_address():
    assert argv(RunSpec(target="/code/train.py", gpus_per_node=2)) == [
        "torchrun",
        "--standalone",
        "--nproc-per-node=2",
        "--log-dir=<run-dir>/logs/torchrun",
        "--redirects=3",
        "/code/train.py",
    ]


def test_several_nodes_meet_at_node_0_under_their_own_ranks():
    spec = RunSpec(target="/code/train.py", nodes=4, gpus_per_node=2)
    known = plan(
        spec,
        node_rank=3,
        master_addr="10.0.0.1",
        master_port=29501,
        local_addr="10.0.0.4",
        interface="eth0",
        attempt_dir="/d",
    )
    assert list(known.argv) == [
        "torchrun",
        "--nnodes=4",
        "--node-rank=3",
        "--master-addr=10.0.0.1",
        "--master-port=29501",
        "--rdzv-id=<run>-1",
        "--local-addr=10.0.0.4",
        "--nproc-per-node=2",
        "--log-dir=/d/logs/torchrun",
        "--redirects=3",
        "/code/train.py",
    ]
    assert known.env["GLOO_SOCKET_IFNAME"] == known.env["NCCL_SOCKET_IFNAME"] == "eth0"


def test_an_address_not_known_yet_stands_in_angle_brackets():
    spec = RunSpec(target="/code/train.py", nodes=2, gpus_per_node=1)
    assert {"--master-addr=<node0-address>", "--master-port=<port>"} <= set(argv(spec))
    assert {"--master-addr=<node0-address>", "--master-port=<port>"} <= set(
        argv(spec, master_addr=None, master_port=None)
    )


def test_a_node_without_the_torchrun_script_uses_the_module():
    spec = RunSpec(target="/code/train.py", gpus_per_node=1)
    assert argv(spec, python="/env/bin/python", torchrun=None)[:4] == [
        "/env/bin/python",
        "-m",
        "torch.distributed.run",
        "--standalone",
    ]


def test_the_python_launcher_gets_none_of_torchruns_variables():
    made = plan(RunSpec(target="/code/train.py", launcher="python"), python="/env/bin/python")
    assert list(made.argv) == ["/env/bin/python", "-u", "/code/train.py"]
    assert not [name for name in made.env if name.startswith(("TORCH_", "TORCHELASTIC_", "RANK0", "MASTER", "WORLD"))]


@pytest.mark.parametrize("strategy", ["single", "dp"])
def test_a_single_process_strategy_starts_plain_python(strategy):
    spec = RunSpec(target="image_classifier", strategy=strategy, gpus_per_node=2)
    assert argv(spec)[:3] == ["python", "-u", CNN]
    assert f"--strategy={strategy}" in argv(spec)


def test_the_old_launch_module_is_started_as_a_module():
    spec = RunSpec(target="/code/train.py", launcher="launch", gpus_per_node=2)
    assert argv(spec)[:4] == ["python", "-m", "torch.distributed.launch", "--standalone"]


def test_a_folder_runs_from_its_copy_in_the_working_directory():
    assert argv(RunSpec(target="/code", entry="src/train.py"))[-1] == "<run-dir>/work/src/train.py"
    assert argv(RunSpec(target="/code", module="my.train"))[-2:] == ["-m", "my.train"]


def test_a_folder_run_in_place_is_not_copied():
    made = plan(RunSpec(target="/code", entry="train.py", workdir="/elsewhere"))
    assert (made.argv[-1], made.cwd) == ("/code/train.py", "/elsewhere")
    in_place = plan(RunSpec(target="/code", module="m", workdir="/elsewhere"))
    assert in_place.env["PYTHONPATH"].split(":")[1:] == ["/code"]


def test_the_probe_comes_first_on_the_path_and_knows_where_to_write():
    env = plan(RunSpec(target="/code/train.py"), attempt_dir="/a").env
    assert (Path(env["PYTHONPATH"]) / "sitecustomize.py").is_file()
    assert env["RANKZERO_PROBE_DIR"] == "/a/probe"


def test_without_the_probe_nothing_of_it_is_in_the_environment():
    assert not {"PYTHONPATH", "RANKZERO_PROBE_DIR"} & plan(RunSpec(target="/t.py", probe=False)).env.keys()


def test_a_recipe_gets_only_the_flags_that_were_set():
    assert argv(RunSpec(target="image_classifier"))[-1] == CNN
    spec = RunSpec(
        target="image_classifier", nodes=4, gpus_per_node=2, lr=0.0001, lr_scaling="linear", batch_size=64,
        epochs=3, max_steps=100, warmup_steps=10, precision="bf16", accumulate=4, strategy="fsdp", seed=7,
        args=["--clip-norm=2"],
    )  # fmt: skip
    flags = argv(spec, resume_path="/d/resume/last.pt")
    assert flags[flags.index(CNN) + 1 :] == [
        "--batch-size=64", "--accumulate=4", "--precision=bf16", "--lr=0.0008", "--warmup-steps=10", "--epochs=3",
        "--max-steps=100", "--seed=7", "--strategy=fsdp", "--resume=/d/resume/last.pt", "--clip-norm=2",
    ]  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_knows_the_flags_it_is_given(name):
    text = recipe_path(name).read_text() + recipe_path("training").read_text()
    flags = [name.replace("_", "-") for name in (*PASSED, "strategy", "resume")]
    assert [flag for flag in flags if f'"--{flag}"' not in text] == []


def test_braces_in_arguments_become_values_and_others_stay():
    spec = RunSpec(
        target="/code/train.py", gpus_per_node=8, lr=0.0001, lr_scaling="linear", batch_size=32,
        args=["--lr={lr}", "{batch_size}/{epochs}", "{unknown} {} {lr", "--out={run_dir}", "{seed}"],
    )  # fmt: skip
    assert argv(spec, attempt_dir="/d")[-5:] == [
        "--lr=0.0008",
        "32/",
        "{unknown} {} {lr",
        "--out=/d/work",
        "",
    ]


def test_the_checkpoint_to_resume_from_is_in_the_arguments_and_the_environment():
    spec = RunSpec(target="/code/train.py", args=["--from={resume}"])
    resumed = plan(spec, run_id="abcdefghij", attempt=2, attempt_dir="/d", resume_path="/d/resume/last.pt")
    assert resumed.argv[-1] == "--from=/d/resume/last.pt"
    assert resumed.env["RANKZERO_RESUME"] == "/d/resume/last.pt"


def test_an_option_whose_value_is_not_set_is_left_out():
    args = ["--from={resume}", "-b", "{batch_size}", "epochs={epochs}", "--amp", "--seed", "{seed}", "end"]
    spec = RunSpec(target="/code/train.py", args=args, seed=5)
    assert argv(spec)[-4:] == ["--amp", "--seed", "5", "end"]
    assert argv(spec)[-5].endswith("train.py")


def test_a_value_that_looks_like_a_brace_is_not_filled_in_again():
    spec = RunSpec(target="/code/train.py", args=["{resume}"], seed=5)
    assert argv(spec, resume_path="/d/{seed}.pt")[-1] == "/d/{seed}.pt"


def test_the_same_values_stand_in_the_environment_when_set():
    spec = RunSpec(target="/code/train.py", gpus_per_node=4, lr=0.1, lr_scaling="sqrt", warmup_steps=0)
    env = plan(spec, run_id="abcdefghij", attempt=2, attempt_dir="/d").env
    expected = {
        "RANKZERO_RUN_ID": "abcdefghij", "RANKZERO_ATTEMPT": "2", "RANKZERO_NODE_RANK": "0",
        "RANKZERO_RUN_DIR": "/d/work",
        "RANKZERO_LR": "0.2", "RANKZERO_STRATEGY": "ddp", "RANKZERO_PRECISION": "fp32",
        "RANKZERO_ACCUMULATE": "1", "RANKZERO_WARMUP_STEPS": "0", "PYTHONUNBUFFERED": "1", "COLUMNS": WIDE,
        "TORCHELASTIC_ERROR_FILE": "/d/error.json",
    }  # fmt: skip
    assert expected.items() <= env.items()
    assert not {"RANKZERO_BATCH_SIZE", "RANKZERO_EPOCHS", "RANKZERO_SEED", "RANKZERO_RESUME"} & env.keys()


def test_the_width_of_a_users_own_terminal_stays():
    spec = RunSpec(target="/code/train.py", gpus_per_node=1, env={"COLUMNS": "100"})
    assert plan(spec, run_id="abcdefghij", attempt=1, attempt_dir="/d").env["COLUMNS"] == "100"


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ("add_argument('--local_rank', type=int)", "--local_rank"),
        ("add_argument('--local_rank', '--local-rank', type=int)", None),
        ("add_argument('--local-rank', type=int)", None),
        ("add_argument('--local_rank_zero_only')", None),
        ("# torch 2 calls it --local-rank\nadd_argument('--local_rank')", "--local_rank"),
        ("print('nothing of the kind')", None),
    ],
)
def test_a_script_of_torch_1_is_told_its_rank_by_the_name_it_knows(source: str, option: str | None):
    spec = RunSpec(target="/code/train.py", gpus_per_node=2, launcher="launch", args=["--epochs", "3"])
    assert local_rank_option(source) == option
    argv = plan(spec, local_rank_option=option).argv
    assert ("--use-env" in argv) == (option is not None)
    rank_option = ["--local_rank=${local_rank}"] if option else []
    assert list(argv[argv.index("/code/train.py") + 1 :]) == [*rank_option, "--epochs", "3"]


def test_a_cpu_run_sees_no_gpu_and_a_gpu_run_sees_its_own():
    spec = RunSpec(target="/code/train.py")
    cpu = plan(spec, device_kind="cpu", devices=["cpu:0"]).env
    assert (cpu["CUDA_VISIBLE_DEVICES"], cpu["ACCELERATE_USE_CPU"]) == ("", "true")
    gpus = plan(spec, device_kind="cuda", devices=["GPU-a", "GPU-b"]).env
    assert gpus["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert not {"CUDA_VISIBLE_DEVICES", "ACCELERATE_USE_CPU"} & set(plan(spec, device_kind="cuda").env)


def test_compiled_code_is_kept_where_the_node_says():
    env = plan(RunSpec(target="/code/train.py"), compile_cache="/d/node/compiled/a").env
    assert env["TORCHINDUCTOR_CACHE_DIR"] == "/d/node/compiled/a"
    assert env["TRITON_CACHE_DIR"] == "/d/node/compiled/a/triton"
    assert "TRITON_CACHE_DIR" not in plan(RunSpec(target="/code/train.py"), compile_cache=None).env
    own = RunSpec(target="/code/train.py", env={"TRITON_CACHE_DIR": "/mine"})
    assert plan(own, compile_cache="/d").env["TRITON_CACHE_DIR"] == "/mine"


def test_a_specs_own_variables_win():
    env = plan(RunSpec(target="/code/train.py", env={"OMP_NUM_THREADS": "3", "A": "b"}), cpu_threads=2).env
    assert (env["OMP_NUM_THREADS"], env["A"]) == ("3", "b")
    assert plan(RunSpec(target="/code/train.py"), cpu_threads=2).env["OMP_NUM_THREADS"] == "2"


def test_torchrun_waits_as_long_as_the_run_may_take_to_save():
    spec = RunSpec(target="/code/train.py", stop_grace_s=90)
    assert plan(spec).env["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "90"


@pytest.mark.parametrize(
    ("lr", "factor", "shown"),
    [(0.0001, 8, "0.0008"), (0.1, 3, "0.3"), (1e-5, 1, "1e-05"), (3.0, 1, "3"), (1 / 3, 1, "0.333333333333")],
)
def test_a_learning_rate_is_shown_without_rounding_noise(lr, factor, shown):
    spec = RunSpec(target="image_classifier", lr=lr, lr_scaling="linear", gpus_per_node=factor)
    assert f"--lr={shown}" in argv(spec)


def test_planning_imports_nothing_heavy():
    heavy = "('torch', 'httpx2', 'psutil')"
    program = f"import sys, domain.launch.plan; print(*sorted(m for m in {heavy} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_torchruns_own_restarts_only_where_they_are_asked_for():
    asked = plan(RunSpec(target="image_classifier", torchrun_restarts=2))
    assert "--max-restarts=2" in asked.argv and asked.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    plain = plan(RunSpec(target="image_classifier"))
    assert not any("max-restarts" in word for word in plain.argv)
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in plain.env
