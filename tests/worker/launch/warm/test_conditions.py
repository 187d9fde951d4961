"""A launch is forked only where nothing about it could make a difference; the obstacle is named in a sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from worker.launch import warm

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
OPTIONS = ("--standalone", "--nproc-per-node=2", "--log-dir=/x/logs", "--redirects=3")


def launch(*argv: str, cwd: str = "/", **fields: Any) -> dict[str, Any]:
    probe = {"RANKZERO_PROBE_DIR": "/x/probe"}
    return {"argv": [*argv], "env": probe, "cwd": cwd, "launcher": "torchrun"} | fields


def test_the_command_of_a_plan_is_no_obstacle():
    assert warm.command_obstacle(launch(TORCHRUN, *OPTIONS, "train.py", "--standalone-not")) == ""
    assert warm.torchrun_python([TORCHRUN]) == sys.executable


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        (launch(sys.executable, "-u", "train.py", launcher="python"), "not started by torchrun"),
        (launch(sys.executable, "-m", "torch.distributed.run", "train.py"), "is not the torchrun script"),
        (launch(TORCHRUN, *OPTIONS, "--numa-binding=node", "train.py"), "option --numa-binding=node"),
        (launch(TORCHRUN, "train.py", env={"PYTHON_EXEC": "/bin/python"}), "PYTHON_EXEC"),
        (launch(TORCHRUN, *OPTIONS, "train.py", env={}), "without the probe"),
    ],
)
def test_an_unusual_command_is_named(fields: dict[str, Any], part: str):
    assert part in warm.command_obstacle(fields)


def test_variables_of_a_single_run_do_not_differ():
    prepared = warm.import_environment({"A": "1", "RANKZERO_RUN_ID": "x"})
    assert prepared == {"A": "1"}
    same = {"A": "1", "RANKZERO_RUN_ID": "y", "CUDA_VISIBLE_DEVICES": "0", "GLOO_SOCKET_IFNAME": "eth0"}
    assert warm.differing(prepared, same, None) == []
    assert warm.differing(prepared, {"FOO": ""}, None) == ["A", "FOO"]


NATIVE = (
    "OMP_NUM_THREADS", "KMP_AFFINITY", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_LAUNCH_BLOCKING",
    "NCCL_DEBUG", "GLOO_DEVICE_TRANSPORT", "TORCH_LOGS", "TORCHDYNAMO_DISABLE", "PYTORCH_CUDA_ALLOC_CONF",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "PYTHONHASHSEED", "LC_ALL", "LANG", "TZ",
    "PATH", "HOME", "TMPDIR", "NPY_DISABLE_CPU_FEATURES", "NVIDIA_TF32_OVERRIDE", "HSA_OVERRIDE_GFX_VERSION",
    "TQDM_DISABLE", "ASAN_OPTIONS", "ACC_DEVICE_TYPE", "TP_SOCKET_IFNAME", "LOCPATH", "TZDIR",
)  # fmt: skip
HARMLESS = ("NVIDIA_API_KEY", "TORCH_HUB_TOKEN", "ACC_STEPS", "TP_SIZE", "TZ_OF_DATA", "MPLBACKEND", "COLUMNS")


@pytest.mark.parametrize("name", NATIVE)
def test_a_variable_that_native_code_may_read_differs_set_changed_or_removed(name: str):
    for prepared, env in (({}, {name: "1"}), ({name: "1"}, {name: "2"}), ({name: "1"}, {})):
        assert warm.differing(prepared, env, ()) == [name]


@pytest.mark.parametrize("name", HARMLESS)
def test_a_credential_or_a_name_of_the_scripts_own_does_not_differ(name: str):
    for prepared, env in (({}, {name: "1"}), ({name: "1"}, {name: "2"}), ({name: "1"}, {})):
        assert warm.differing(prepared, env, ()) == []


def test_of_other_variables_those_that_were_read_differ():
    prepared = {"SEED_NAME": "a", "LOGLEVEL": "INFO", "DATA": "/x"}
    env = {"SEED_NAME": "b", "LOGLEVEL": "DEBUG", "WANDB_NAME": "z", "HF_HOME": "/data", "CI": "1"}
    assert warm.differing(prepared, env, {"LOGLEVEL", "CI", "USER"}) == ["CI", "LOGLEVEL"]


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("helper.py", "import os", ""),
        ("data/readme.txt", "", ""),
        ("queue.py", "", "queue.py beside the script hides the module queue"),
        ("numpy/__init__.py", "", "numpy beside the script hides"),
        ("data/queue.py", "", ""),
        ("setup.py", "os.environ['OMP_NUM_THREADS'] = '4'", "setup.py names OMP_NUM_THREADS"),
        ("package/__init__.py", 'os.environ.setdefault("TORCH_LOGS", "+dynamo")', "names TORCH_LOGS"),
        ("other.py", "os.environ['CUDA_VISIBLE_DEVICES'] = ''", ""),
        ("seeds.py", "os.environ['PYTHONHASHSEED'] = '0'", ""),
    ],
)
def test_code_that_would_meet_another_torch_is_named(tmp_path: Path, name: str, text: str, part: str):
    (tmp_path / "train.py").touch()
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    argv = [TORCHRUN, *OPTIONS, str(tmp_path / "train.py")]
    obstacle = warm.code_obstacle(launch(*argv), ["queue", "numpy", "torch"])
    assert part in obstacle and bool(part) == bool(obstacle)


def test_a_module_imported_already_and_what_is_no_script_are_named(tmp_path: Path):
    module = launch(TORCHRUN, *OPTIONS, "-m", "torch.utils.benchmark", cwd=str(tmp_path))
    assert "torch.utils.benchmark is imported already" in warm.code_obstacle(module, ["torch"])
    archive = launch(TORCHRUN, *OPTIONS, "app.pyz", cwd=str(tmp_path))
    assert "app.pyz is not a .py file" in warm.code_obstacle(archive, ["torch"])
